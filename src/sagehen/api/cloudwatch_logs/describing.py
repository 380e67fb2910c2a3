"""DescribeLogGroups, DescribeLogStreams."""

from typing import Any

from sagehen.api.call import Call
from sagehen.api.cloudwatch_logs.groups import Group, Stream, all_groups, find_group
from sagehen.api.cloudwatch_logs.refusals import invalid, not_built
from sagehen.api.cloudwatch_logs.stored_log import open_log
from sagehen.api.cloudwatch_logs.tokens import read_token, write_token

__all__ = ["describe_log_groups", "describe_log_streams"]

DEFAULT_LIMIT = 50


def describe_log_groups(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """One page of the groups there are, by name."""
    if "logGroupNamePrefix" in params and "logGroupNamePattern" in params:
        raise invalid("logGroupNamePrefix and logGroupNamePattern are mutually exclusive.")
    for member in ("accountIdentifiers", "logGroupIdentifiers"):
        if member in params:
            raise not_built(member)
    prefix = params.get("logGroupNamePrefix", "")
    # Unlike filters of events, this is in whatever case.
    part = params.get("logGroupNamePattern", "").lower()
    after = read_token(params["nextToken"], str) if "nextToken" in params else ""
    found = [
        one
        for one in all_groups(call)
        if one.name.startswith(prefix) and part in one.name.lower() and one.name > after
    ]
    if params.get("logGroupClass", "STANDARD") != "STANDARD":
        found = []
    limit = params.get("limit", DEFAULT_LIMIT)
    answer: dict[str, Any] = {"logGroups": [_group(call, one) for one in found[:limit]]}
    if len(found) > limit:
        answer["nextToken"] = write_token(found[limit - 1].name)
    return answer


def describe_log_streams(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """One page of a group's streams, by name or by when something was last added."""
    group = find_group(call, params)
    by_time = params.get("orderBy", "LogStreamName") == "LastEventTime"
    prefix = params.get("logStreamNamePrefix", "")
    if by_time and prefix:
        raise invalid("Cannot order by LastEventTime with a logStreamNamePrefix.")
    descending = params.get("descending", False)
    placed = sorted(
        (((one.modified_ms if by_time else 0), one.key, one) for one in group.streams(prefix)),
        key=lambda one: one[:2],
        reverse=descending,
    )
    if "nextToken" in params:
        last = read_token(params["nextToken"], tuple[int, str])
        placed = [one for one in placed if (one[:2] < last if descending else one[:2] > last)]
    limit = params.get("limit", DEFAULT_LIMIT)
    found = [_stream(call, group, one[2]) for one in placed[:limit]]
    answer: dict[str, Any] = {"logStreams": [one for one in found if one]}
    if len(placed) > limit:
        answer["nextToken"] = write_token(placed[limit - 1][:2])
    return answer


def _group(call: Call, group: Group) -> dict[str, Any]:
    arn = call.arns.log_group(group.name)
    return {
        "logGroupName": group.name,
        "metricFilterCount": 0,
        "arn": f"{arn}:*",
        "logGroupArn": arn,
        "logGroupClass": "STANDARD",
    }


def _stream(call: Call, group: Group, stream: Stream) -> dict[str, Any] | None:
    """None where it has gone since."""
    log = open_log(stream.path)
    if log is None:
        return None
    name = stream.name
    described = {
        "logStreamName": name,
        "creationTime": log.created_ms,
        "arn": f"{call.arns.log_group(group.name)}:log-stream:{name}",
        "storedBytes": 0,
    }
    if log.end > log.start:
        last_ms = log.time_at(log.end - 1)
        described["firstEventTimestamp"] = log.time_at(log.start)
        described["lastEventTimestamp"] = described["lastIngestionTime"] = last_ms
    return described
