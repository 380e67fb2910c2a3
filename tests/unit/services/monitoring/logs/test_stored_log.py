"""A log over rotations, broken renames and lost times."""

from collections.abc import Callable
from pathlib import Path

from sagehen.agent.instances.container_log import ContainerLog, LogTimes
from sagehen.frame.log_times import RESOLUTION_MS, put_aside, times_path
from sagehen.services.monitoring.logs.operations import OPERATIONS
from support.clock import HandClock
from support.stored_logs import GROUP, START, Logs


def test_what_was_put_aside_twice_is_gone(make_logs: Callable[..., Logs]) -> None:
    logs = make_logs(400)
    first = None
    for number in range(100):
        logs.print(b"line %02d\n" % number, after=1)
        first = first or logs.get(startFromHead=True)
    assert first is not None
    texts = logs.texts(nextToken=first["nextForwardToken"])
    assert texts[-1] == "line 99"
    assert texts == [f"line {number:02d}" for number in range(100 - len(texts), 100)]
    assert 1 < len(texts) < 60
    created = OPERATIONS["DescribeLogStreams"](logs.call, {"logGroupName": GROUP})
    assert created["logStreams"][0]["creationTime"] == int((START + 1) * 1000)


def test_a_kill_between_the_two_renames_is_mended(logs: Logs) -> None:
    logs.print(b"before\n")
    token = logs.get(startFromHead=True)["nextForwardToken"]
    logs.close()
    logs.path.replace(put_aside(logs.path))
    logs.restart()
    logs.print(b"after\n", after=5)
    assert logs.texts(startFromHead=True) == ["before", "after"]
    assert logs.texts(nextToken=token) == ["after"]


def test_a_log_without_times_is_told_with_that_of_its_file(logs: Logs) -> None:
    logs.print(b"one\ntwo\n")
    logs.close()
    times_path(logs.path).unlink()
    told = logs.get(startFromHead=True)["events"]
    modified = int(logs.path.stat().st_mtime * 1000)
    assert [(one["message"], one["timestamp"]) for one in told] == [
        ("one", modified),
        ("two", modified),
    ]
    logs.restart()
    logs.clock.seconds = logs.path.stat().st_mtime
    logs.print(b"three\n", after=60)
    times = [one["timestamp"] for one in logs.get(startFromHead=True)["events"]]
    assert times == [modified, modified, int(logs.clock.seconds * 1000)]


def test_times_take_little_and_fail_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    clock = HandClock(START)
    times_path(path).mkdir()
    log = ContainerLog(path, 1000, clock.now)
    log._write(b"kept\n")
    assert path.read_bytes() == b"kept\n"
    with path.open("rb") as file:
        other = LogTimes(tmp_path / "b.log", clock.now)
        other.open(file, 0)
    for step in range(1000):
        clock.seconds = START + step / 5000
        other.note(step)
    assert other.size <= 32 + 16 * (200 // RESOLUTION_MS + 1)
    other.close()
    log._close()
