"""The operations of CloudWatch Logs in a cluster, whose logs are in the homes of all nodes.

Each node is asked for what it has, and the answers are merged. What is on a node that does not
answer is missing: a stream that may be there is an error that names the node, and answers about
several streams have a header that does.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sagehen.frame.context import AsyncOperation, RequestContext
from sagehen.services.monitoring.logs.errors import invalid, no_stream, node_away
from sagehen.services.monitoring.logs.node_requests import NodeAnswer, NodeRequest
from sagehen.services.monitoring.logs.operations import (
    DEFAULT_DESCRIBED,
    LARGEST_PAGE_BYTES,
    EventPosition,
    StreamEntry,
    streams_answer,
)
from sagehen.services.monitoring.logs.reading import DEFAULT_LIMIT, read_token, write_token

__all__ = ["LogNodes", "NodeAnswers", "cluster_operations"]

_TOKEN = re.compile(r"([fb])/(\d{16})(\d{40})/s")
"""of GetLogEvents: the number of the node before the position"""


@dataclass(frozen=True)
class NodeAnswers:
    by_node: dict[str, NodeAnswer]
    missing: Sequence[str] = field(default=())
    """the nodes that have not answered"""


class LogNodes(Protocol):
    async def ask(self, request: NodeRequest, node_id: str | None = None) -> NodeAnswers:
        """Asks all nodes, or one."""


def cluster_operations(nodes: LogNodes) -> dict[str, AsyncOperation]:
    operations = _ClusterOperations(nodes)
    return {
        "DescribeLogGroups": operations.describe_log_groups,
        "DescribeLogStreams": operations.describe_log_streams,
        "FilterLogEvents": operations.filter_log_events,
        "GetLogEvents": operations.get_log_events,
    }


class _ClusterOperations:
    def __init__(self, nodes: LogNodes) -> None:
        self._nodes = nodes

    async def describe_log_groups(
        self, call: RequestContext, params: dict[str, Any]
    ) -> dict[str, Any]:
        results, _ = await self._ask(call, "groups", params)
        groups = {group["logGroupName"]: group for each in results for group in each["logGroups"]}
        limit = params.get("limit", DEFAULT_DESCRIBED)
        names = sorted(groups)
        answer: dict[str, Any] = {"logGroups": [groups[name] for name in names[:limit]]}
        if len(names) > limit or any("nextToken" in each for each in results):
            answer["nextToken"] = write_token(names[:limit][-1])
        return answer

    async def describe_log_streams(
        self, call: RequestContext, params: dict[str, Any]
    ) -> dict[str, Any]:
        results, _ = await self._ask(call, "streams", params)
        entries = [(ms, key, stream) for each in results for ms, key, stream in each["entries"]]
        merged = _merge_streams(entries, params.get("descending", False))
        return streams_answer(params, merged, any(each["has_more"] for each in results))

    async def filter_log_events(
        self, call: RequestContext, params: dict[str, Any]
    ) -> dict[str, Any]:
        results, missing = await self._ask(call, "filter", params)
        known = {name for each in results for name in each["known"]}
        if any(name not in known for name in params.get("logStreamNames", ())):
            raise node_away(", ".join(missing)) if missing else no_stream()
        answer = _merge_events([each["answer"] for each in results], params)
        # CloudWatch's own way to say that a search was not complete.
        answer["searchedLogStreams"] = [
            {"logStreamName": f"(all on the machine {node_id})", "searchedCompletely": False}
            for node_id in missing
        ]
        return answer

    async def get_log_events(self, call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
        """The log of an instance that has moved has a part on each node where it ran."""
        asked = NodeRequest(kind="find", params=params)
        found = await self._nodes.ask(asked)
        _results_of(found)
        _warn(call, found.missing)
        parts = sorted(
            (answer.result["created_ms"], node_id)
            for node_id, answer in found.by_node.items()
            if not answer.code
        )
        node_ids = [node_id for _, node_id in parts]
        at, forward, own = _start(params, node_ids, found.missing)
        while True:
            answer = await self._page(node_ids[at], own)
            following = at + (1 if forward else -1)
            if answer["events"] or not 0 <= following < len(node_ids):
                return answer
            at = following
            own = {**_without_token(params), "startFromHead": forward}

    async def _page(self, node_id: str, params: dict[str, Any]) -> dict[str, Any]:
        found = await self._nodes.ask(NodeRequest(kind="events", params=params), node_id)
        (answer,) = _results_of(found)
        for name in ("nextForwardToken", "nextBackwardToken"):
            direction, _, position = answer[name].partition("/")
            number = int(position.partition("/")[0])
            answer[name] = f"{direction}/{_number(node_id):016d}{number:040d}/s"
        return answer

    async def _ask(
        self, call: RequestContext, kind: str, params: dict[str, Any]
    ) -> tuple[list[dict[str, Any]], Sequence[str]]:
        """Returns the results of the nodes that have what is asked for. Raises AwsError."""
        found = await self._nodes.ask(NodeRequest(kind=kind, params=params))
        results = _results_of(found)
        _warn(call, found.missing)
        return results, found.missing


def _results_of(answers: NodeAnswers) -> list[dict[str, Any]]:
    """Raises AwsError where no node has what is asked for, and another error of any node."""
    results, errors = [], []
    for answer in answers.by_node.values():
        error = answer.error()
        if error is None:
            results.append(answer.result)
        elif error.code == "ResourceNotFoundException":
            errors.append(error)
        else:
            raise error
    if results:
        return results
    if answers.missing:
        raise node_away(", ".join(answers.missing))
    if errors:
        raise errors[0]
    raise node_away("all of them")


def _warn(call: RequestContext, missing: Sequence[str]) -> None:
    if missing:
        names = ", ".join(missing)
        call.warnings.append(f"Without the logs on machines that do not answer: {names}")


def _merge_streams(entries: Sequence[StreamEntry], descending: bool) -> list[StreamEntry]:
    """A stream of several nodes is described as one, in the place of its last part."""
    by_key: dict[str, StreamEntry] = {}
    for ms, key, stream in entries:
        other_ms, _, other = by_key.get(key, (ms, key, {}))
        by_key[key] = (max(ms, other_ms), key, _merge_stream(other, stream))
    return sorted(by_key.values(), key=lambda entry: entry[:2], reverse=descending)


def _merge_stream(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    if not one or not other:
        return one or other
    choices = {
        "creationTime": min,
        "firstEventTimestamp": min,
        "lastEventTimestamp": max,
        "lastIngestionTime": max,
    }
    merged = {**one, **other}
    for name, choose in choices.items():
        values = [each[name] for each in (one, other) if name in each]
        if values:
            merged[name] = choose(values)
    return merged


def _merge_events(answers: Sequence[dict[str, Any]], params: dict[str, Any]) -> dict[str, Any]:
    """Merges the first pages of several nodes into one. A page ends where that of any node ends:
    what follows there may be earlier than what others have found."""
    ends = [read_token(each["nextToken"], EventPosition) for each in answers if "nextToken" in each]
    end = min(ends, default=None)
    found = sorted(
        ((_position(event), event) for each in answers for event in each["events"]),
        key=lambda entry: entry[0],
    )
    events: list[dict[str, Any]] = []
    size, last = 0, end
    for position, event in found:
        if end is not None and position > end:
            break
        if len(events) == params.get("limit", DEFAULT_LIMIT) or size > LARGEST_PAGE_BYTES:
            last = _position(events[-1])
            break
        events.append(event)
        size += len(event["message"])
    merged: dict[str, Any] = {"events": events}
    if last is not None:
        merged["nextToken"] = write_token(last)
    return merged


def _position(event: dict[str, Any]) -> EventPosition:
    # An event's id ends with its position in the log.
    return EventPosition(event["timestamp"], event["logStreamName"], int(event["eventId"][-20:]))


def _start(
    params: dict[str, Any], node_ids: Sequence[str], missing: Sequence[str]
) -> tuple[int, bool, dict[str, Any]]:
    """Returns the node to ask first, the direction, and the parameters. Raises AwsError."""
    token = params.get("nextToken")
    if token is None:
        forward = params.get("startFromHead", False)
        return (0 if forward else len(node_ids) - 1), forward, params
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise invalid("The specified nextToken is invalid.")
    direction, number, position = match[1], int(match[2]), int(match[3])
    forward = direction == "f"
    for at, node_id in enumerate(node_ids):
        if _number(node_id) == number:
            return at, forward, {**params, "nextToken": f"{direction}/{position:056d}/s"}
    away = [node_id for node_id in missing if _number(node_id) == number]
    if away:
        raise node_away(away[0])
    # That part is gone with its machine: the oldest line that exists follows.
    at = 0 if forward else len(node_ids) - 1
    return at, forward, {**_without_token(params), "startFromHead": forward}


def _without_token(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name != "nextToken"}


def _number(node_id: str) -> int:
    """Returns the same number always, of at most 15 digits."""
    return int.from_bytes(hashlib.sha256(node_id.encode()).digest()[:6], "big")
