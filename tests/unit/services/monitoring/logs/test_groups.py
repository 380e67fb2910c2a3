"""Log streams of jobs by their names, of which the time is a part."""

from pathlib import Path
from typing import Any

import pytest

from sagehen.agent.instances.container_log import ContainerLog
from sagehen.frame.log_times import put_aside, times_path
from sagehen.services.monitoring.logs.groups import Group, find_stream


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The log of the only host of a job."""
    return tmp_path / "job" / "algo-1.log"


@pytest.fixture
def log(path: Path) -> Any:
    made = ContainerLog(path, 100, lambda: 1_700_000_000.5)
    yield made
    made._close()


def names(path: Path) -> list[str]:
    group = Group("/aws/sagemaker/TrainingJobs", path.parent.parent, of_jobs=True)
    return [stream.name for stream in group.streams("job/")]


def test_a_stream_is_named_after_when_its_log_was_begun(path: Path, log: ContainerLog) -> None:
    log.add("said")
    assert names(path) == ["job/algo-1-1700000000"]


def test_a_log_that_is_just_being_begun_has_no_name_yet(path: Path, log: ContainerLog) -> None:
    path.touch()  # The agent opens the file, and then notes its time.
    assert names(path) == []
    log.add("said")
    assert names(path) == ["job/algo-1-1700000000"]


def test_a_name_stays_while_the_log_is_put_aside(path: Path, log: ContainerLog) -> None:
    log.add("said")
    log._close()
    for file in (path, times_path(path)):  # One after the other, and both before new ones.
        moved = put_aside(path) if file == path else times_path(put_aside(path))
        file.replace(moved)
        assert names(path) == ["job/algo-1-1700000000"]
    path.touch()
    assert names(path) == ["job/algo-1-1700000000"]


def test_what_nobody_noted_the_time_of_is_there_all_the_same(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("said\n")
    assert names(path) == ["job/algo-1-0"]


def test_a_data_log_has_the_name_of_its_instance_s_stream(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "i-1.data-log.log").write_text("said\n")
    group = Group("/aws/sagemaker/TransformJobs", tmp_path, of_jobs=True)
    assert group.streams("job/") == []  # The name has the time of the instance's log.
    log = ContainerLog(folder / "i-1.log", 100, lambda: 1_700_000_000.5)
    log.add("said")
    log._close()
    own, data_log = group.streams("job/i-1")
    assert (own.name, data_log.name) == ("job/i-1-1700000000", "job/i-1-1700000000/data-log")
    assert data_log.path.name == "i-1.data-log.log"
    assert data_log.begun_ms == 1_700_000_000_500
    assert [stream.name for stream in group.streams(own.name + "/")] == [data_log.name]
    assert find_stream(group, data_log.name).path == data_log.path
    assert find_stream(group, own.name).path == own.path


def test_a_data_log_beside_a_container_that_prints_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    silent = ContainerLog(folder / "i-1.log", 100, lambda: 1_700_000_000.5)
    silent.follow_chunks([])
    silent.settle(30)
    (folder / "i-1.data-log.log").write_text("said\n")
    group = Group("/aws/sagemaker/TransformJobs", tmp_path, of_jobs=True)
    own, data_log = group.streams("job/")
    assert (own.name, data_log.name) == ("job/i-1-1700000000", "job/i-1-1700000000/data-log")
