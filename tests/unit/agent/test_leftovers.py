import subprocess

from sagehen.agent.leftovers import clear_leftovers
from sagehen.home import Home


def test_what_an_earlier_agent_left_is_cleared(home: Home) -> None:
    folder = home.instances / "i-1" / "primary" / "ml"
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    (home.run / "i-1.sock").touch()
    (home.run / "agent.sock").touch()
    mark = {"SAGEHEN_BASE_DIR": str(folder), "SAGEMAKER_BASE_DIR": "/opt/ml"}
    other = {"SAGEMAKER_BASE_DIR": "/opt/ml"}
    left = subprocess.Popen(["/bin/sleep", "1000"], env=mark)
    unrelated = subprocess.Popen(["/bin/sleep", "1000"], env=other)
    try:
        clear_leftovers(home)
        left.wait(60)
        assert unrelated.poll() is None
    finally:
        for process in (left, unrelated):
            process.kill()
            process.wait(60)
    assert list(home.instances.iterdir()) == []
    assert (home.run / "agent.sock").exists()
    assert not (home.run / "i-1.sock").exists()
