"""Logs as events: written as the agent writes them, read as CloudWatch Logs does."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.agent.instances.container_log import ContainerLog, LogTimes
from sagehen.frame.arns import ArnMaker
from sagehen.frame.context import RequestContext
from sagehen.frame.log_times import RESOLUTION_MS, put_aside, times_path
from sagehen.services.monitoring.logs import operations as filtering
from sagehen.services.monitoring.logs.operations import OPERATIONS, read_filter
from sagehen.wire.errors import AwsError
from support.clock import HandClock

GROUP = "/aws/sagemaker/Endpoints/demo"
STREAM = "AllTraffic/i-1"
START = 1_700_000_000.0
"""Long ago: files are written later, so that none of them looks settled unless a test says so."""


class Logs:
    """`logs.print(b"…")` as a container would; `logs.get(…)` as a client would."""

    def __init__(self, home: Path, call: RequestContext, clock: HandClock, most_bytes: int) -> None:
        self.path = home / "logs" / "endpoints" / "demo" / "AllTraffic" / "i-1" / "primary.log"
        self.clock = clock
        self.call = call
        self.most_bytes = most_bytes
        self.log = ContainerLog(self.path, most_bytes, clock.now)

    def restart(self) -> None:
        self.close()
        self.log = ContainerLog(self.path, self.most_bytes, self.clock.now)

    def close(self) -> None:
        self.log._close()

    def print(self, data: bytes, after: float = 0.0) -> None:
        self.clock.seconds += after
        self.log._write(data)

    def get(self, **params: Any) -> dict[str, Any]:
        given = {"logGroupName": GROUP, "logStreamName": STREAM, **params}
        return OPERATIONS["GetLogEvents"](self.call, given)

    def filter(self, **params: Any) -> dict[str, Any]:
        return OPERATIONS["FilterLogEvents"](self.call, {"logGroupName": GROUP, **params})

    def texts(self, **params: Any) -> list[str]:
        return [one["message"] for one in self.get(**params)["events"]]


@pytest.fixture
def make_logs(server: Any, tmp_path: Path) -> Iterator[Callable[..., Logs]]:
    server.clock.seconds = START
    made: list[Logs] = []

    def make(most_bytes: int = 10**6) -> Logs:
        made.append(Logs(tmp_path, server.call(), server.clock, most_bytes))
        return made[-1]

    yield make
    for logs in made:
        logs.close()


@pytest.fixture
def logs(make_logs: Callable[..., Logs]) -> Logs:
    return make_logs()


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
    monkeypatch.setattr(filtering, "MOST_READ_BYTES", 2**18)
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


def test_streams_are_merged_by_time(logs: Logs) -> None:
    beside = logs.path.parent.parent / "i-2" / "primary.log"
    other = ContainerLog(beside, 10**6, logs.clock.now)
    for number in range(4):
        logs.print(b"a%d\n" % number, after=1)
        logs.clock.seconds += 1
        other._write(b"b%d ERROR\n" % number)
    logs.clock.seconds += 1
    found = logs.filter()
    assert [one["message"][:2] for one in found["events"]] == [
        "a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3",
    ]  # fmt: skip
    assert "nextToken" not in found
    assert len({one["eventId"] for one in found["events"]}) == 8
    seen, token = [], {}
    while True:
        page = logs.filter(limit=3, **token)
        seen += page["events"]
        if "nextToken" not in page:
            break
        token = {"nextToken": page["nextToken"]}
    assert seen == found["events"]
    named = logs.filter(logStreamNames=["AllTraffic/i-2"], filterPattern="ERROR")
    assert len(named["events"]) == 4
    assert len(logs.filter(logStreamNamePrefix="AllTraffic/i-1")["events"]) == 4
    third = found["events"][2]["timestamp"]
    within = logs.filter(startTime=third, endTime=third)
    assert [one["message"] for one in within["events"]] == ["a1"]
    other._close()


def test_what_is_quite_new_waits_until_all_streams_have_come_so_far(logs: Logs) -> None:
    logs.print(b"old\n")
    logs.print(b"new\n", after=1)
    assert [one["message"] for one in logs.filter()["events"]] == ["old"]
    logs.clock.seconds += 1
    assert [one["message"] for one in logs.filter()["events"]] == ["old", "new"]


@pytest.mark.parametrize(
    ("pattern", "wanted", "unwanted"),
    [
        ("", ["anything"], []),
        ("ERROR", ["an ERROR"], ["error"]),
        ("ERROR time", ["time ERROR"], ["ERROR"]),
        ('"exit code"', ["the exit code is"], ["exit  code", "exit"]),
        ("?ERROR ?WARN", ["WARN", "ERROR"], ["INFO"]),
        ("ERROR -retry", ["ERROR"], ["ERROR retry"]),
        ('-"a b" c', ["c b a"], ["a b c"]),
        ('"say \\"hi\\""', ['say "hi"'], ["say hi"]),
    ],
)
def test_filters(pattern: str, wanted: list[str], unwanted: list[str]) -> None:
    accepts = read_filter(pattern)
    assert [one for one in wanted if not accepts(one)] == []
    assert [one for one in unwanted if accepts(one)] == []


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("{ $.a = 1 }", "JSON"),
        ("[ip, user]", "columns"),
        ("%ERR.*%", "regular expressions"),
        ("a %b%", "regular expressions"),
        ('"open', "cannot be read from character 1"),
    ],
)
def test_filters_that_are_none_of_ours(pattern: str, why: str) -> None:
    with pytest.raises(AwsError, match=why) as caught:
        read_filter(pattern)
    assert caught.value.code == "InvalidParameterException"


@pytest.mark.parametrize(
    ("operation", "params", "code"),
    [
        ("GetLogEvents", {"logStreamName": "AllTraffic/none"}, "ResourceNotFoundException"),
        ("GetLogEvents", {"logStreamName": "../../control"}, "ResourceNotFoundException"),
        ("GetLogEvents", {"logStreamName": STREAM, "nextToken": "x"}, "InvalidParameterException"),
        ("FilterLogEvents", {"nextToken": "x"}, "InvalidParameterException"),
        ("FilterLogEvents", {"logStreamNames": ["a"], "logStreamNamePrefix": "a"},
         "InvalidParameterException"),
        ("FilterLogEvents", {"logStreamNames": ["none"]}, "ResourceNotFoundException"),
        ("DescribeLogStreams", {"nextToken": "x"}, "InvalidParameterException"),
        ("DescribeLogStreams", {"orderBy": "LastEventTime", "logStreamNamePrefix": "a"},
         "InvalidParameterException"),
        ("DescribeLogStreams", {"logGroupName": "/aws/sagemaker/Endpoints/.."},
         "ResourceNotFoundException"),
        ("DescribeLogStreams", {"logGroupIdentifier": GROUP}, "InvalidParameterException"),
        ("DescribeLogStreams", {"logGroupName": "/aws/sagemaker/TrainingJobs"},
         "ResourceNotFoundException"),
    ],
)  # fmt: skip
def test_bad_requests(logs: Logs, operation: str, params: dict[str, Any], code: str) -> None:
    logs.print(b"x\n")
    with pytest.raises(AwsError) as caught:
        OPERATIONS[operation](logs.call, {"logGroupName": GROUP, **params})
    assert caught.value.code == code


def test_groups_and_streams_are_described(logs: Logs) -> None:
    logs.print(b"x\n")
    for job, host in (("job", "algo-1"), ("job", "algo-2"), ("job-b", "algo-1")):
        path = logs.path.parents[4] / "training-jobs" / job / f"{host}.log"
        log = ContainerLog(path, 1000, logs.clock.now)
        log._write(b"x\n")
        log._close()
        logs.clock.seconds += 1
    groups = OPERATIONS["DescribeLogGroups"](logs.call, {"limit": 1})
    assert [one["logGroupName"] for one in groups["logGroups"]] == [GROUP]
    groups = OPERATIONS["DescribeLogGroups"](logs.call, {"nextToken": groups["nextToken"]})
    assert [one["logGroupName"] for one in groups["logGroups"]] == ["/aws/sagemaker/TrainingJobs"]
    assert "nextToken" not in groups

    def streams(**params: Any) -> list[str]:
        given = {"logGroupName": "/aws/sagemaker/TrainingJobs", **params}
        answer = OPERATIONS["DescribeLogStreams"](logs.call, given)
        names = [one["logStreamName"] for one in answer["logStreams"]]
        return [*names, answer["nextToken"]] if "nextToken" in answer else names

    first = int(START)
    assert streams(logStreamNamePrefix="job/") == [f"job/algo-1-{first}", f"job/algo-2-{first + 1}"]
    assert streams(logStreamNamePrefix=f"job/algo-1-{first}") == [f"job/algo-1-{first}"]
    assert streams(logStreamNamePrefix="job/algo-1-9") == []
    everything = [f"job-b/algo-1-{first + 2}", *streams(logStreamNamePrefix="job/")]
    assert streams() == everything
    assert streams(descending=True) == everything[::-1]
    *page, token = streams(limit=2)
    assert page + streams(nextToken=token) == everything
    arn = "arn:aws:logs:us-east-1:000000000000:log-group:/aws/sagemaker/TrainingJobs:*"
    answer = OPERATIONS["DescribeLogStreams"](logs.call, {"logGroupIdentifier": arn})
    assert len(answer["logStreams"]) == 3
