"""FilterLogEvents, the operations that describe, and what is refused."""

from typing import Any

import pytest

from sagehen.agent.instances.container_log import ContainerLog
from sagehen.services.monitoring.logs.operations import OPERATIONS, read_filter
from sagehen.wire.errors import AwsError
from support.stored_logs import GROUP, START, STREAM, Logs


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
