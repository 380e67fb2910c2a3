"""Lines without an end, very long lines and very many."""

import time
from collections.abc import Callable

from support.stored_logs import Logs


def test_a_line_without_an_end_waits_a_while(logs: Logs) -> None:
    logs.print(b"whole\nhal")
    logs.clock.seconds = logs.path.stat().st_mtime
    page = logs.get(startFromHead=True)
    assert [one["message"] for one in page["events"]] == ["whole"]
    logs.print(b"f\n")
    assert logs.texts(nextToken=page["nextForwardToken"]) == ["half"]
    logs.print(b"progress")
    logs.clock.seconds = logs.path.stat().st_mtime + 2
    page = logs.get(startFromHead=True)
    assert [one["message"] for one in page["events"]] == ["whole", "half", "progress"]
    logs.print(b" bar\n")
    assert logs.texts(nextToken=page["nextForwardToken"]) == [" bar"]


def test_lines_longer_than_an_event(logs: Logs) -> None:
    logs.print(b"x" * 600_000 + b"\nend\n")
    assert [len(text) for text in logs.texts(startFromHead=True)] == [262_144, 262_144, 75_712, 3]
    assert logs.texts(limit=1) == ["end"]


def test_bytes_that_are_no_text(logs: Logs) -> None:
    logs.print(b"\xff\xfe caf\xc3\xa9\r\n\r\n")
    assert logs.texts(startFromHead=True) == ["\ufffd\ufffd café"]


def test_very_many_lines_of_little_or_nothing_take_no_time(
    make_logs: Callable[..., Logs],
) -> None:
    logs = make_logs(most_bytes=10**8)
    logs.print(b"first\n" + b"\n" * 500_000 + b"\r\n" * 100_000 + b"last\n")
    logs.print(b"x\n" * 200_000, after=1.0)
    logs.clock.seconds += 60
    began = time.process_time()
    assert logs.texts(startFromHead=True, limit=3) == ["first", "last", "x"]
    assert logs.texts(limit=2) == ["x", "x"]
    page = logs.filter(filterPattern="last")
    assert [one["message"] for one in page["events"]] == ["last"]
    assert logs.filter(filterPattern="last", nextToken=page["nextToken"])["events"] == []
    assert time.process_time() - began < 3, "a request takes a fraction of a second"
