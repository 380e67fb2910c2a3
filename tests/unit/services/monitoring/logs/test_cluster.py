"""CloudWatch Logs over the homes of several nodes."""

from dataclasses import dataclass
from types import SimpleNamespace

import msgspec
import pytest

from sagehen.agent.instances.container_log import ContainerLog
from sagehen.base.home import Home
from sagehen.frame.arns import ArnMaker
from sagehen.services.monitoring.logs.cluster import NodeAnswers, cluster_operations
from sagehen.services.monitoring.logs.node_requests import NodeAnswer, answer_request
from sagehen.wire.errors import AwsError
from support.clock import HandClock
from support.state import settings_of

GROUP = "/aws/sagemaker/Endpoints/demo"
START = 1_700_000_000.0


@dataclass
class Context:
    """What a node knows."""

    settings: object
    clock: HandClock
    arns: ArnMaker


class Cluster:
    """`cluster.prints("a", "i-1", "hello")`: a container on the node `a`."""

    def __init__(self, folder):
        self.folder = folder
        self.clock = HandClock(START)
        self.contexts = {}
        self.missing = set()
        self.logs = {}
        self.operations = cluster_operations(self)
        for name in ("a", "b"):
            settings = settings_of(folder / name)
            self.contexts[name] = Context(settings, self.clock, ArnMaker.of(settings))

    def prints(self, node, instance, line, after=1.0):
        self.clock.seconds += after
        if (node, instance) not in self.logs:
            logs = Home(self.folder / node).logs
            path = logs / "endpoints" / "demo" / "AllTraffic" / instance / "primary.log"
            self.logs[node, instance] = ContainerLog(path, 10**6, self.clock.now)
        self.logs[node, instance]._write(f"{line}\n".encode())

    async def ask(self, request, node_id=None):
        asked = [name for name in self.contexts if node_id in (None, name)]
        answers = {}
        for name in asked:
            if name not in self.missing:
                answer = answer_request(self.contexts[name], request)
                # As it comes over the network.
                answers[name] = msgspec.json.decode(msgspec.json.encode(answer), type=NodeAnswer)
        return NodeAnswers(answers, tuple(name for name in asked if name in self.missing))

    async def call(self, operation, **params):
        context = SimpleNamespace(warnings=[])
        self.warnings = context.warnings
        given = params if operation == "DescribeLogGroups" else {"logGroupName": GROUP, **params}
        return await self.operations[operation](context, given)

    async def pages(self, operation, **params):
        """The messages of all pages."""
        pages = []
        while True:
            answer = await self.call(operation, **params)
            pages.append([event["message"] for event in answer["events"]])
            if "nextToken" not in answer:
                return pages
            params["nextToken"] = answer["nextToken"]


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    for log in made.logs.values():
        log._close()


def texts(answer):
    return [event["message"] for event in answer["events"]]


async def test_streams_of_all_nodes_are_listed_and_read(cluster):
    cluster.prints("a", "i-1", "one")
    cluster.prints("b", "i-2", "two")
    groups = await cluster.call("DescribeLogGroups")
    assert [group["logGroupName"] for group in groups["logGroups"]] == [GROUP]
    answer = await cluster.call("DescribeLogStreams")
    streams = [stream["logStreamName"] for stream in answer["logStreams"]]
    assert streams == ["AllTraffic/i-1", "AllTraffic/i-2"]
    for name, line in zip(streams, ("one", "two"), strict=True):
        assert texts(await cluster.call("GetLogEvents", logStreamName=name)) == [line]
    assert cluster.warnings == []


async def test_pages_of_streams_go_over_all_nodes(cluster):
    for number in range(6):
        cluster.prints("ab"[number % 2], f"i-{number}", "said")
    for more in ({}, {"descending": True}):
        found, token = [], {}
        while True:
            answer = await cluster.call("DescribeLogStreams", limit=2, **token, **more)
            found += [stream["logStreamName"][-1] for stream in answer["logStreams"]]
            if "nextToken" not in answer:
                break
            token = {"nextToken": answer["nextToken"]}
        assert found == sorted("012345", reverse=bool(more))


async def test_events_of_all_nodes_are_merged_by_time(cluster):
    for number in range(20):
        cluster.prints("ab"[number % 3 == 0], f"i-{number % 4}", f"line {number}")
    cluster.clock.seconds += 10
    expected = [f"line {number}" for number in range(20)]
    for limit in (1, 3, 7, 100):
        pages = await cluster.pages("FilterLogEvents", limit=limit)
        assert [line for page in pages for line in page] == expected
        assert max(map(len, pages)) <= limit
    (some,) = await cluster.pages("FilterLogEvents", filterPattern='"line 1"')
    assert some == [line for line in expected if "line 1" in line]


async def test_streams_may_be_named_wherever_they_are(cluster):
    cluster.prints("a", "i-1", "one")
    cluster.prints("b", "i-2", "two")
    cluster.prints("b", "i-3", "three")
    cluster.clock.seconds += 10
    names = ["AllTraffic/i-1", "AllTraffic/i-2"]
    assert texts(await cluster.call("FilterLogEvents", logStreamNames=names)) == ["one", "two"]
    with pytest.raises(AwsError) as refused:
        await cluster.call("FilterLogEvents", logStreamNames=[*names, "AllTraffic/i-9"])
    assert refused.value.code == "ResourceNotFoundException"


async def test_a_stream_of_an_instance_that_has_moved_is_one(cluster):
    """Forward and backward, by pages of two lines, and followed at the end."""
    for number in range(5):
        cluster.prints("b", "i-1", f"old {number}")
    for number in range(5):
        cluster.prints("a", "i-1", f"new {number}")
    name = "AllTraffic/i-1"
    lines = [f"old {number}" for number in range(5)] + [f"new {number}" for number in range(5)]
    (stream,) = (await cluster.call("DescribeLogStreams"))["logStreams"]
    first_ms = int((START + 1) * 1000)
    assert stream["creationTime"] == stream["firstEventTimestamp"] == first_ms
    assert stream["lastEventTimestamp"] == first_ms + 9000

    async def walk(forward):
        params = {"logStreamName": name, "limit": 2, "startFromHead": forward}
        token_name = "nextForwardToken" if forward else "nextBackwardToken"
        found = []
        while True:
            answer = await cluster.call("GetLogEvents", **params)
            found += texts(answer) if forward else reversed(texts(answer))
            if params.get("nextToken") == answer[token_name]:
                return found, answer[token_name]
            params["nextToken"] = answer[token_name]

    found, end = await walk(forward=True)
    assert found == lines
    assert (await walk(forward=False))[0] == lines[::-1]
    cluster.prints("a", "i-1", "newer")
    added = await cluster.call("GetLogEvents", logStreamName=name, nextToken=end)
    assert texts(added) == ["newer"]


async def test_a_node_that_is_away_is_named(cluster):
    cluster.prints("a", "i-1", "one")
    cluster.prints("b", "i-2", "two")
    cluster.clock.seconds += 10
    first = await cluster.call("GetLogEvents", logStreamName="AllTraffic/i-2", startFromHead=True)
    cluster.missing = {"b"}
    answer = await cluster.call("FilterLogEvents")
    assert texts(answer) == ["one"]
    (incomplete,) = answer["searchedLogStreams"]
    assert incomplete["searchedCompletely"] is False
    assert incomplete["logStreamName"] == "(all on the machine b)"
    for operation in ("FilterLogEvents", "DescribeLogStreams", "DescribeLogGroups"):
        await cluster.call(operation)
        assert cluster.warnings == ["Without the logs on machines that do not answer: b"]
    # What may be there is not said to be nowhere.
    for params in ({}, {"nextToken": first["nextForwardToken"]}):
        with pytest.raises(AwsError) as refused:
            await cluster.call("GetLogEvents", logStreamName="AllTraffic/i-2", **params)
        assert refused.value.code == "ServiceUnavailableException"
        assert "does not answer now: b." in refused.value.message
    with pytest.raises(AwsError) as refused:
        await cluster.call("FilterLogEvents", logStreamNames=["AllTraffic/i-2"])
    assert refused.value.code == "ServiceUnavailableException"


async def test_the_part_of_a_node_that_is_away_is_not_passed_over(cluster):
    """Whoever has read the old part to its middle must not go on with the new one."""
    for number in range(3):
        cluster.prints("b", "i-1", f"old {number}")
    cluster.prints("a", "i-1", "new")
    first = await cluster.call(
        "GetLogEvents", logStreamName="AllTraffic/i-1", startFromHead=True, limit=1
    )
    params = {"logStreamName": "AllTraffic/i-1", "nextToken": first["nextForwardToken"]}
    cluster.missing = {"b"}
    with pytest.raises(AwsError) as refused:
        await cluster.call("GetLogEvents", **params)
    assert refused.value.code == "ServiceUnavailableException"
    # Gone for good: the oldest line that exists follows.
    cluster.missing = set()
    del cluster.contexts["b"]
    assert texts(await cluster.call("GetLogEvents", **params)) == ["new"]


@pytest.mark.parametrize(
    ("operation", "params", "code"),
    [
        ("GetLogEvents", {"logStreamName": "AllTraffic/i-9"}, "ResourceNotFoundException"),
        (
            "GetLogEvents",
            {"logStreamName": "AllTraffic/i-1", "nextToken": "x"},
            "InvalidParameterException",
        ),
        ("FilterLogEvents", {"nextToken": "x"}, "InvalidParameterException"),
        ("FilterLogEvents", {"filterPattern": "{a}"}, "InvalidParameterException"),
        ("DescribeLogStreams", {"logGroupName": "/other"}, "ResourceNotFoundException"),
    ],
)
async def test_bad_requests_are_refused_as_on_one_machine(cluster, operation, params, code):
    cluster.prints("a", "i-1", "one")
    with pytest.raises(AwsError) as refused:
        await cluster.call(operation, **params)
    assert refused.value.code == code


async def test_a_group_of_two_nodes_is_described_once(cluster):
    cluster.prints("a", "i-1", "one")
    cluster.prints("b", "i-2", "two")
    logs = Home(cluster.folder / "b").logs / "endpoints" / "other" / "v" / "i-3"
    logs.mkdir(parents=True)
    (logs / "primary.log").write_text("said\n")
    first = await cluster.call("DescribeLogGroups", limit=1)
    second = await cluster.call("DescribeLogGroups", limit=1, nextToken=first["nextToken"])
    found = [*first["logGroups"], *second["logGroups"]]
    assert [group["logGroupName"].rpartition("/")[2] for group in found] == ["demo", "other"]
    assert "nextToken" not in second
