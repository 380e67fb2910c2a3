"""Read operations of CloudWatch Logs over the logs of this machine's containers.

A filter pattern has terms and quoted phrases: all are required, `?` marks alternatives, `-`
exclusions.
"""

import hashlib
import heapq
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from sagehen.frame.context import Operation
from sagehen.services.monitoring.logs.errors import invalid, no_stream, not_built
from sagehen.services.monitoring.logs.groups import (
    Group,
    LogContext,
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
from sagehen.wire.errors import AwsError

__all__ = [
    "OPERATIONS",
    "EventPosition",
    "StreamEntry",
    "describe_log_groups",
    "describe_log_streams",
    "filter_log_events",
    "read_filter",
]

DEFAULT_DESCRIBED = 50


def describe_log_groups(call: LogContext, params: dict[str, Any]) -> dict[str, Any]:
    if "logGroupNamePrefix" in params and "logGroupNamePattern" in params:
        raise invalid("logGroupNamePrefix and logGroupNamePattern are mutually exclusive.")
    for member in ("accountIdentifiers", "logGroupIdentifiers"):
        if member in params:
            raise not_built(member)
    prefix = params.get("logGroupNamePrefix", "")
    # Ignores case, unlike event filters.
    part = params.get("logGroupNamePattern", "").lower()
    after = read_token(params["nextToken"], str) if "nextToken" in params else ""
    groups = [
        group
        for group in all_groups(call)
        if group.name.startswith(prefix) and part in group.name.lower() and group.name > after
    ]
    if params.get("logGroupClass", "STANDARD") != "STANDARD":
        groups = []
    limit = params.get("limit", DEFAULT_DESCRIBED)
    answer: dict[str, Any] = {"logGroups": [_group(call, group) for group in groups[:limit]]}
    if len(groups) > limit:
        answer["nextToken"] = write_token(groups[limit - 1].name)
    return answer


StreamEntry = tuple[int, str, dict[str, Any]]
"""a described stream, behind what streams are sorted by"""


def describe_log_streams(call: LogContext, params: dict[str, Any]) -> dict[str, Any]:
    entries, has_more = list_streams(call, params)
    return streams_answer(params, entries, has_more)


def streams_answer(
    params: dict[str, Any], entries: Sequence[StreamEntry], has_more: bool
) -> dict[str, Any]:
    """Answers DescribeLogStreams with the first of sorted streams."""
    limit = params.get("limit", DEFAULT_DESCRIBED)
    answer: dict[str, Any] = {"logStreams": [entry[2] for entry in entries[:limit] if entry[2]]}
    if entries and (has_more or len(entries) > limit):
        answer["nextToken"] = write_token(entries[:limit][-1][:2])
    return answer


def list_streams(call: LogContext, params: dict[str, Any]) -> tuple[list[StreamEntry], bool]:
    """Returns a page of streams, and whether there are more. One that is gone is empty."""
    group = find_group(call, params)
    by_time = params.get("orderBy", "LogStreamName") == "LastEventTime"
    prefix = params.get("logStreamNamePrefix", "")
    if by_time and prefix:
        raise invalid("Cannot order by LastEventTime with a logStreamNamePrefix.")
    descending = params.get("descending", False)
    sorted_streams = sorted(
        (
            ((entry.modified_ms if by_time else 0), entry.sort_key, entry)
            for entry in group.streams(prefix)
        ),
        key=lambda entry: entry[:2],
        reverse=descending,
    )
    if "nextToken" in params:
        last = read_token(params["nextToken"], tuple[int, str])
        sorted_streams = [
            entry
            for entry in sorted_streams
            if (entry[:2] < last if descending else entry[:2] > last)
        ]
    limit = params.get("limit", DEFAULT_DESCRIBED)
    page = [
        (ms, key, _stream(call, group, stream) or {}) for ms, key, stream in sorted_streams[:limit]
    ]
    return page, len(sorted_streams) > limit


def _group(call: LogContext, group: Group) -> dict[str, Any]:
    arn = call.arns.log_group(group.name)
    return {
        "logGroupName": group.name,
        "metricFilterCount": 0,
        "arn": f"{arn}:*",
        "logGroupArn": arn,
        "logGroupClass": "STANDARD",
    }


def _stream(call: LogContext, group: Group, stream: LogStream) -> dict[str, Any] | None:
    """Returns None if the log is gone."""
    log = open_log(stream.path)
    if log is None:
        return None
    name = stream.name
    described = {
        "logStreamName": name,
        "creationTime": log.created_ms or stream.begun_ms,
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

    def matches(message: str) -> bool:
        return (
            all(term in message for term in needed)
            and (not any_of or any(term in message for term in any_of))
            and not any(term in message for term in excluded)
        )

    return matches


def _terms(text: str) -> tuple[list[str], list[str], list[str]]:
    by_sign: dict[str, list[str]] = {"": [], "?": [], "-": []}
    position = 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None:
            raise invalid(
                f"Invalid filter pattern: it cannot be read from character {position + 1} on."
            )
        phrase = re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
        if match[2] is None and phrase.startswith("%"):
            raise not_built(f"filter patterns over regular expressions ({phrase[:64]})")
        by_sign[match[1]].append(phrase)
        position = match.end()
        position += len(text[position:]) - len(text[position:].lstrip())
    return by_sign[""], by_sign["?"], by_sign["-"]


MAX_STREAMS = 500
LARGEST_PAGE_BYTES = 2**20
MAX_READ_BYTES = 16 * 2**20
"""per answer: if a filter rejects everything, the page is empty but has a next token"""
BYTES_PER_EVENT = 200
"""added per line, as a log may have millions of one-letter lines"""
UNSETTLED_MS = 250
"""younger events wait for the next call: otherwise an event could appear after a younger one of
another stream, which followers would miss"""

COARSE_MS = 1000
"""file system clocks may lag by at most this"""


class EventPosition(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The position of an event among all streams."""

    ms: int
    stream: str
    position: int


def filter_log_events(call: LogContext, params: dict[str, Any]) -> dict[str, Any]:
    """Returns one page of events from some or all streams of a group."""
    answer = filter_known_streams(call, params)
    known = known_streams(call, params)
    if any(name not in known for name in params.get("logStreamNames", ())):
        raise no_stream()
    return answer


def known_streams(call: LogContext, params: dict[str, Any]) -> list[str]:
    """Returns those of the named streams that there are."""
    group = find_group(call, params)
    return [stream.name for stream in _named_streams(group, params.get("logStreamNames", ()))]


def _named_streams(group: Group, names: Sequence[str]) -> list[LogStream]:
    found = []
    for name in sorted(set(names)):
        with suppress(AwsError):
            found.append(find_stream(group, name))
    return found


def filter_known_streams(call: LogContext, params: dict[str, Any]) -> dict[str, Any]:
    """Like `filter_log_events`; named streams that there are not have no events."""
    if not params.get("startFromHead", True):
        raise not_built("startFromHead false: the oldest events come first")
    group = find_group(call, params)
    streams = _streams(group, params)
    matches = read_filter(params.get("filterPattern", ""))
    after = read_token(params["nextToken"], EventPosition) if "nextToken" in params else None
    limit = params.get("limit", DEFAULT_LIMIT)
    events: list[dict[str, Any]] = []
    page_bytes = read_bytes = 0
    last: EventPosition | None = None
    for position, event, read in _merged(call, streams, params, after):
        if len(events) == limit or page_bytes > LARGEST_PAGE_BYTES or read_bytes > MAX_READ_BYTES:
            # More events follow, so this page has a next token.
            return {"events": events, "searchedLogStreams": [], "nextToken": write_token(last)}
        last = position
        read_bytes += read + BYTES_PER_EVENT
        if event.text and matches(event.text):
            events.append(_event(position, event))
            page_bytes += event_bytes(event)
    return {"events": events, "searchedLogStreams": []}


def _streams(group: Group, params: dict[str, Any]) -> list[LogStream]:
    """Returns the streams to search that may have events of the requested time."""
    if "logStreamNames" in params and "logStreamNamePrefix" in params:
        raise invalid("logStreamNames and logStreamNamePrefix are mutually exclusive.")
    if "logStreamNames" in params:
        return _named_streams(group, params["logStreamNames"])
    streams = group.streams(params.get("logStreamNamePrefix", ""))
    start_ms = params.get("startTime", 0)
    streams = [stream for stream in streams if stream.modified_ms + COARSE_MS >= start_ms]
    if len(streams) > MAX_STREAMS:
        raise invalid(
            f"{len(streams)} log streams would be searched; {MAX_STREAMS} can be. Name some, or a "
            "prefix, or a later startTime."
        )
    return streams


def _merged(
    call: LogContext,
    streams: list[LogStream],
    params: dict[str, Any],
    after: EventPosition | None,
) -> Iterator[tuple[EventPosition, LogEvent, int]]:
    """Merges the events of all streams after `after`, oldest first."""
    now = call.clock.now()
    start_ms = max(params.get("startTime", 0), after.ms if after else 0)
    end_ms = min(params.get("endTime", 2**63), int(now * 1000) - UNSETTLED_MS)
    by_stream = [_of_stream(item, start_ms, end_ms, now) for item in streams]
    for item in heapq.merge(*by_stream, key=lambda item: item[0]):
        if after is None or item[0] > after:
            yield item


def _of_stream(
    stream: LogStream, start_ms: int, end_ms: int, now: float
) -> Iterator[tuple[EventPosition, LogEvent, int]]:
    """Yields each event with the bytes read for it, including empty lines before it."""
    log = open_log(stream.path)
    if log is None:
        return
    name = stream.name
    read_to = start_of_line(log, log.position_at(start_ms))
    for event in lines_from(log, read_to, log.end, now):
        if event.ms > end_ms:
            return
        yield EventPosition(event.ms, name, event.position), event, event.end - read_to
        read_to = event.end


def _event(position: EventPosition, event: LogEvent) -> dict[str, Any]:
    stream_id = int.from_bytes(hashlib.sha256(position.stream.encode()).digest()[:8], "big")
    return {
        "logStreamName": position.stream,
        "timestamp": event.ms,
        "message": event.text,
        "ingestionTime": event.ms,
        "eventId": f"{event.ms:016d}{stream_id:020d}{event.position:020d}",
    }


OPERATIONS: dict[str, Operation] = {
    "DescribeLogGroups": describe_log_groups,
    "DescribeLogStreams": describe_log_streams,
    "FilterLogEvents": filter_log_events,
    "GetLogEvents": get_log_events,
}
