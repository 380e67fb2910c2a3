import os
import shutil
from pathlib import Path

import pytest

from sagehen.agent.instances.leftovers import prune_job_logs, prune_logs


def test_the_oldest_logs_go_and_those_of_running_instances_stay(tmp_path: Path) -> None:
    for number in range(6):
        folder = tmp_path / "endpoints" / f"e{number}" / "AllTraffic" / f"i-{number:017x}"
        folder.mkdir(parents=True)
        (folder / "primary.log").touch()
        os.utime(folder / "primary.log", (number, number))
    prune_logs(tmp_path, frozenset({f"i-{0:017x}"}), keep=2)
    assert sorted(path.name for path in (tmp_path / "endpoints").iterdir()) == ["e0", "e4", "e5"]


def test_there_may_be_none(tmp_path: Path) -> None:
    prune_logs(tmp_path, frozenset())
    assert list(tmp_path.iterdir()) == []


def test_what_somebody_else_has_removed_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = shutil.rmtree
    for number in range(3):
        (tmp_path / "endpoints" / f"e{number}" / "AllTraffic" / f"i-{number:017x}").mkdir(
            parents=True
        )
    # Two instances that are put at once prune at once.
    monkeypatch.setattr(shutil, "rmtree", lambda path, **_: remove(path.parents[1]))
    prune_logs(tmp_path, frozenset(), keep=1)
    assert len(list((tmp_path / "endpoints").iterdir())) == 1


def test_the_oldest_logs_of_jobs_go_and_those_of_running_jobs_stay(tmp_path: Path) -> None:
    prune_job_logs(tmp_path / "training-jobs", frozenset(), keep=1)
    for number in range(5):
        folder = tmp_path / "training-jobs" / f"job-{number}"
        folder.mkdir(parents=True)
        (folder / "algo-1.log").touch()
        os.utime(folder / "algo-1.log", (number, number))
    prune_job_logs(tmp_path / "training-jobs", frozenset({"job-0"}), keep=2)
    kept = sorted(path.name for path in (tmp_path / "training-jobs").iterdir())
    assert kept == ["job-0", "job-3", "job-4"]
