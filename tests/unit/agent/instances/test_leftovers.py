import os
import subprocess
import time
from pathlib import Path

import pytest

from sagehen.agent.instances.leftovers import clear_leftovers, prune_logs
from sagehen.base.clock import SYSTEM
from sagehen.base.home import Home, prepare_home
from sagehen.gateway.routing.sessions import Sessions

INSTANCE = "i-0123456789abcdef0"
ATTEMPT = "0123456789abcdef0123456789abcdef-12"


def test_what_an_earlier_agent_left_is_cleared(home: Home) -> None:
    folder = home.instances / INSTANCE / "primary" / "ml"
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    (home.jobs / ATTEMPT / "algo-1").mkdir(parents=True)
    for name in (INSTANCE, f"{INSTANCE}-2"):
        (home.run / name).mkdir()
        (home.run / name / "http.sock").touch()
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
    assert list(home.jobs.iterdir()) == []
    assert (home.run / "agent.sock").exists()
    assert not list(home.run.glob("i-*"))


def test_what_a_user_has_in_folders_of_those_names_stays(
    short_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = [
        short_path / name
        for name in (
            "jobs/thesis/results.csv",
            "jobs/notes.txt",
            "instances/big/model.bin",
            "instances/i-1/model.bin",
            "run/sessions/thesis",
            *(f"logs/endpoints/a/b/{number}/c" for number in range(60)),
        )
    ]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        os.utime(path, (1, 1))
    home = prepare_home(short_path)
    clear_leftovers(home)
    prune_logs(home.logs, frozenset())
    Sessions(home.sessions, SYSTEM).sweep()
    assert [path for path in mine if not path.exists()] == []
    assert "thesis" in caplog.text


def test_old_drafts_of_sessions_are_removed(home: Home) -> None:
    folder = home.sessions
    sessions = Sessions(folder, SYSTEM)
    old = [folder / ("0" * 64), folder / f"{'1' * 32}.new"]
    for path in old:
        path.touch()
        os.utime(path, (1, 1))
    (folder / ("2" * 64)).touch()
    os.utime(folder / ("2" * 64), (time.time() + 60,) * 2)
    sessions.sweep()
    assert [path.name for path in folder.iterdir()] == ["2" * 64]
