"""Read operations of CloudWatch Logs over the logs of this machine's containers.

A filter pattern has terms and quoted phrases: all are required, `?` marks alternatives, `-`
exclusions.
"""

import hashlib
import heapq
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from sagehen.frame.context import Operation, RequestContext
from sagehen.services.monitoring.logs.errors import invalid, not_built
from sagehen.services.monitoring.logs.groups import (
    Group,
    LogStream,
    all_groups,
    find_group,
    find_stream,
)
from sagehen.services.monitoring.logs.lines import LogEvent, lines_from, start_of_line
from sagehen.services.monitoring.logs.reading import (
    DEFAULT_LIMIT,
    event_bytes,
    get_log_events,
    read_token,
    write_token,
)
from sagehen.services.monitoring.logs.stored_log import open_log

__all__ = [
    "OPERATIONS",
    "describe_log_groups",
    "describe_log_streams",
    "filter_log_events",
    "read_filter",
]

DEFAULT_DESCRIBED = 50


def describe_log_groups(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    if "logGroupNamePrefix" in params and "logGroupNamePattern" in params:
        raise invalid("logGroupNamePrefix and logGroupNamePattern are mutually exclusive.")
    for member in ("accountIdentifiers", "logGroupIdentifiers"):
        if member in params:
            raise not_built(member)
    prefix = params.get("logGroupNamePrefix", "")
    # Ignores case, unlike event filters.
    part = params.get("logGroupNamePattern", "").lower()
    after = read_token(params["nextToken"], str) if "nextToken" in params else ""
    found = [
        one
        for one in all_groups(call)
        if one.name.startswith(prefix) and part in one.name.lower() and one.name > after
    ]
    if params.get("logGroupClass", "STANDARD") != "STANDARD":
        found = []
    limit = params.get("limit", DEFAULT_DESCRIBED)
    answer: dict[str, Any] = {"logGroups": [_group(call, one) for one in found[:limit]]}
    if len(found) > limit:
        answer["nextToken"] = write_token(found[limit - 1].name)
    return answer


def describe_log_streams(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
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
    limit = params.get("limit", DEFAULT_DESCRIBED)
    found = [_stream(call, group, one[2]) for one in placed[:limit]]
    answer: dict[str, Any] = {"logStreams": [one for one in found if one]}
    if len(placed) > limit:
        answer["nextToken"] = write_token(placed[limit - 1][:2])
    return answer


def _group(call: RequestContext, group: Group) -> dict[str, Any]:
    arn = call.arns.log_group(group.name)
    return {
        "logGroupName": group.name,
        "metricFilterCount": 0,
        "arn": f"{arn}:*",
        "logGroupArn": arn,
        "logGroupClass": "STANDARD",
    }


def _stream(call: RequestContext, group: Group, stream: LogStream) -> dict[str, Any] | None:
    """Returns None if the log is gone."""
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


_TERM = re.compile(r'([?-]?)(?:"((?:[^"\\]|\\.)*)"|([^\s"]+))(?=\s|$)')


def read_filter(pattern: str) -> Callable[[str], bool]:
    """Compiles a case-sensitive filter pattern.

    Raises AwsError if it is malformed or uses JSON, columns or regular expressions.
    """
    text = pattern.strip()
    for start, kind in (("{", "JSON"), ("[", "columns"), ("%", "regular expressions")):
        if text.startswith(start):
            raise not_built(f"filter patterns over {kind} ({text[:64]}); terms and phrases are")
    needed, any_of, excluded = _terms(text)

    def wanted(message: str) -> bool:
        return (
            all(one in message for one in needed)
            and (not any_of or any(one in message for one in any_of))
            and not any(one in message for one in excluded)
        )

    return wanted


def _terms(text: str) -> tuple[list[str], list[str], list[str]]:
    by_sign: dict[str, list[str]] = {"": [], "?": [], "-": []}
    place = 0
    while place < len(text):
        found = _TERM.match(text, place)
        if found is None:
            raise invalid(
                f"Invalid filter pattern: it cannot be read from character {place + 1} on."
            )
        phrase = re.sub(r"\\(.)", r"\1", found[2]) if found[2] is not None else found[3]
        if found[2] is None and phrase.startswith("%"):
            raise not_built(f"filter patterns over regular expressions ({phrase[:64]})")
        by_sign[found[1]].append(phrase)
        place = found.end()
        place += len(text[place:]) - len(text[place:].lstrip())
    return by_sign[""], by_sign["?"], by_sign["-"]


MOST_STREAMS = 500
LARGEST_PAGE_BYTES = 2**20
MOST_READ_BYTES = 16 * 2**20
"""per answer: if a filter rejects everything, the page is empty but has a next token"""
BYTES_BESIDE = 200
"""added per line, as a log may have millions of one-letter lines"""
UNSETTLED_MS = 250
"""younger events wait for the next call: otherwise an event could appear after a younger one of
another stream, which followers would miss"""

COARSE_MS = 1000
"""file system clocks may lag by at most this"""


class _Place(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The position of an event among all streams."""

    ms: int
    stream: str
    position: int


def filter_log_events(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Returns one page of events from some or all streams of a group."""
    if not params.get("startFromHead", True):
        raise not_built("startFromHead false: the oldest events come first")
    group = find_group(call, params)
    streams = _streams(group, params)
    wanted = read_filter(params.get("filterPattern", ""))
    after = read_token(params["nextToken"], _Place) if "nextToken" in params else None
    limit = params.get("limit", DEFAULT_LIMIT)
    events: list[dict[str, Any]] = []
    page_bytes = read_bytes = 0
    last: _Place | None = None
    for place, line, read in _merged(call, streams, params, after):
        if len(events) == limit or page_bytes > LARGEST_PAGE_BYTES or read_bytes > MOST_READ_BYTES:
            # More events follow, so this page has a next token.
            return {"events": events, "searchedLogStreams": [], "nextToken": write_token(last)}
        last = place
        read_bytes += read + BYTES_BESIDE
        if line.text and wanted(line.text):
            events.append(_event(place, line))
            page_bytes += event_bytes(line)
    return {"events": events, "searchedLogStreams": []}


def _streams(group: Group, params: dict[str, Any]) -> list[LogStream]:
    """Returns the streams to search that may have events of the requested time."""
    if "logStreamNames" in params and "logStreamNamePrefix" in params:
        raise invalid("logStreamNames and logStreamNamePrefix are mutually exclusive.")
    if "logStreamNames" in params:
        return [find_stream(group, name) for name in sorted(set(params["logStreamNames"]))]
    found = group.streams(params.get("logStreamNamePrefix", ""))
    since = params.get("startTime", 0)
    found = [one for one in found if one.modified_ms + COARSE_MS >= since]
    if len(found) > MOST_STREAMS:
        raise invalid(
            f"{len(found)} log streams would be searched; {MOST_STREAMS} can be. Name some, or a "
            "prefix, or a later startTime."
        )
    return found


def _merged(
    call: RequestContext, streams: list[LogStream], params: dict[str, Any], after: _Place | None
) -> Iterator[tuple[_Place, LogEvent, int]]:
    """Merges the events of all streams after `after`, oldest first."""
    now = call.clock.now()
    since = max(params.get("startTime", 0), after.ms if after else 0)
    until = min(params.get("endTime", 2**63), int(now * 1000) - UNSETTLED_MS)
    each = [_of_stream(one, since, until, now) for one in streams]
    for found in heapq.merge(*each, key=lambda one: one[0]):
        if after is None or found[0] > after:
            yield found


def _of_stream(
    stream: LogStream, since: int, until: int, now: float
) -> Iterator[tuple[_Place, LogEvent, int]]:
    """Yields each event with the bytes read for it, including empty lines before it."""
    log = open_log(stream.path)
    if log is None:
        return
    name = stream.name
    behind = start_of_line(log, log.position_at(since))
    for line in lines_from(log, behind, log.end, now):
        if line.ms > until:
            return
        yield _Place(line.ms, name, line.position), line, line.end - behind
        behind = line.end


def _event(place: _Place, line: LogEvent) -> dict[str, Any]:
    stream_id = int.from_bytes(hashlib.sha256(place.stream.encode()).digest()[:8], "big")
    return {
        "logStreamName": place.stream,
        "timestamp": line.ms,
        "message": line.text,
        "ingestionTime": line.ms,
        "eventId": f"{line.ms:016d}{stream_id:020d}{line.position:020d}",
    }


OPERATIONS: dict[str, Operation] = {
    "DescribeLogGroups": describe_log_groups,
    "DescribeLogStreams": describe_log_streams,
    "FilterLogEvents": filter_log_events,
    "GetLogEvents": get_log_events,
}
