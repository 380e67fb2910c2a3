"""Logs as events: written as the agent writes them, read as CloudWatch Logs does."""

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.frame.arns import ArnMaker
from sagehen.services.monitoring.logs import operations as filtering
from support.clock import HandClock
from support.stored_logs import START, Logs


def test_lines_have_the_times_when_they_were_printed(logs: Logs) -> None:
    logs.print(b"one\n")
    logs.print(b"two\nthree is ", after=1)
    logs.print(b"late\n\n", after=1)
    logs.print(b"in between\n", after=0.002)
    answer = logs.get(startFromHead=True)
    ms = int(START * 1000)
    assert [(one["timestamp"] - ms, one["message"]) for one in answer["events"]] == [
        (0, "one"),
        (1000, "two"),
        (2000, "three is late"),
        (2000, "in between"),
    ]


@pytest.mark.parametrize(
    "printed", [b"\n" * 2**20 + b"end\n", (b"x\n" + b"\n" * 2**17) * 8 + b"end\n"]
)
def test_empty_lines_are_as_much_to_read_as_others(
    logs: Logs, printed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtering, "MAX_READ_BYTES", 2**18)
    logs.print(printed)
    logs.clock.seconds += 10
    page = logs.filter(filterPattern="end")
    pages = 1
    while "nextToken" in page:
        assert page["events"] == []
        page = logs.filter(filterPattern="end", nextToken=page["nextToken"])
        pages += 1
    assert [one["message"] for one in page["events"]] == ["end"]
    assert 3 <= pages <= 5


def test_a_clock_that_goes_back_does_not_take_times_with_it(logs: Logs) -> None:
    logs.print(b"one\n")
    logs.print(b"two\n", after=-3600)
    logs.restart()
    logs.print(b"three\n", after=0)
    times = [one["timestamp"] for one in logs.get(startFromHead=True)["events"]]
    assert times == [int(START * 1000)] * 3


def test_tokens_lead_to_themselves_at_the_ends(logs: Logs) -> None:
    logs.print(b"".join(b"%d\n" % number for number in range(5)))
    last = logs.get(limit=2)
    assert [one["message"] for one in last["events"]] == ["3", "4"]
    end = logs.get(nextToken=last["nextForwardToken"])
    assert end["events"] == []
    assert end["nextForwardToken"] == last["nextForwardToken"]
    assert logs.texts(nextToken=end["nextBackwardToken"], limit=1) == ["4"]
    before = logs.get(nextToken=last["nextBackwardToken"], limit=2)
    assert [one["message"] for one in before["events"]] == ["1", "2"]
    first = logs.get(nextToken=before["nextBackwardToken"])
    assert [one["message"] for one in first["events"]] == ["0"]
    none = logs.get(nextToken=first["nextBackwardToken"])
    assert (none["events"], none["nextBackwardToken"]) == ([], first["nextBackwardToken"])
    logs.print(b"5\n")
    assert logs.texts(nextToken=end["nextForwardToken"]) == ["5"]


def test_times_bound_what_is_told(logs: Logs) -> None:
    for number in range(6):
        logs.print(b"%d a\n%d b\n" % (number, number), after=1)
    ms = int(START * 1000)
    within = {"startTime": ms + 2000, "endTime": ms + 4000}
    assert logs.texts(**within, startFromHead=True) == ["1 a", "1 b", "2 a", "2 b"]
    assert logs.texts(**within, limit=1) == ["2 b"]
    page = logs.get(**within, startFromHead=True, limit=3)
    assert logs.texts(**within, nextToken=page["nextForwardToken"]) == ["2 b"]
    assert logs.texts(startTime=ms + 60_000) == []
    assert logs.texts(endTime=ms) == []
    assert logs.texts(startTime=ms + 4000, endTime=ms + 2000) == []


def test_a_page_is_a_megabyte(make_logs: Callable[..., Logs]) -> None:
    logs = make_logs(10**7)
    for number in range(300):
        logs.print(b"%04d" % number + b"x" * 9_996 + b"\n", after=1)
    seen = []
    answer = logs.get(startFromHead=True)
    while answer["events"]:
        assert sum(len(one["message"]) for one in answer["events"]) <= 2**20
        seen += [one["message"][:4] for one in answer["events"]]
        answer = logs.get(nextToken=answer["nextForwardToken"])
    assert seen == [f"{number:04d}" for number in range(300)]
    back = logs.get()
    assert back["events"][-1]["message"].startswith("0299")
    assert 90 < len(back["events"]) < 105


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_whoever_follows_sees_each_line_once(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """However pieces are cut, files are put aside and the log is opened anew, meanwhile."""
    clock = HandClock(START)
    home = tmp_path_factory.mktemp("home")
    logs = Logs(home, _call(home, clock), clock, most_bytes=600)
    source = random.Random(data.draw(st.integers(0, 2**32)))
    printed = "".join(f"line {number} {'x' * source.randrange(40)}\n" for number in range(60))
    token, seen, place = None, [], 0
    while place < len(printed):
        piece = printed[place : place + source.randrange(1, 120)]
        place += len(piece)
        logs.print(piece.encode(), after=source.choice([0, 0.01, 0.2]))
        if source.random() < 0.1:
            logs.restart()
        answer = logs.get(startFromHead=True, **({"nextToken": token} if token else {}))
        token = answer["nextForwardToken"]
        seen += answer["events"]
    assert [one["message"] for one in seen] == printed.splitlines()
    times = [one["timestamp"] for one in seen]
    assert times == sorted(times)
    logs.close()


def _call(home: Path, clock: HandClock) -> Any:
    arns = ArnMaker("000000000000", "us-east-1")
    return SimpleNamespace(settings=SimpleNamespace(home=home), clock=clock, arns=arns)
