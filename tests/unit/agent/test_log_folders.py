import os
from pathlib import Path

from sagehen.agent.log_folders import prune_logs


def test_the_oldest_logs_go_and_those_of_running_instances_stay(tmp_path: Path) -> None:
    for number in range(6):
        folder = tmp_path / "endpoints" / f"e{number}" / "AllTraffic" / f"i-{number}"
        folder.mkdir(parents=True)
        (folder / "primary.log").touch()
        os.utime(folder / "primary.log", (number, number))
    prune_logs(tmp_path, frozenset({"i-0"}), most=2)
    assert sorted(path.name for path in (tmp_path / "endpoints").iterdir()) == ["e0", "e4", "e5"]


def test_there_may_be_none(tmp_path: Path) -> None:
    prune_logs(tmp_path, frozenset())
    assert list(tmp_path.iterdir()) == []
