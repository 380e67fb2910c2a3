"""GetLogEvents: pages of one stream, forward or backward, with tokens that contain log
positions."""

import base64
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from sagehen.services.monitoring.logs.errors import invalid, no_stream
from sagehen.services.monitoring.logs.groups import LogContext, find_group, find_stream
from sagehen.services.monitoring.logs.lines import BLOCK_BYTES, LogEvent, lines_from, start_of_line
from sagehen.services.monitoring.logs.stored_log import StoredLog, open_log

__all__ = ["DEFAULT_LIMIT", "event_bytes", "get_log_events", "read_token", "write_token"]

DEFAULT_LIMIT = 10_000
LARGEST_PAGE_BYTES = 2**20
_BYTES_PER_EVENT = 26
"""counted by CloudWatch besides the message"""
_TOKEN = re.compile(r"([fb])/(\d{1,56})/s")


def get_log_events(call: LogContext, params: dict[str, Any]) -> dict[str, Any]:
    """Returns one page of events; at the end of the stream, the token returned is the one given."""
    log = open_log(find_stream(find_group(call, params), params["logStreamName"]).path)
    if log is None:
        raise no_stream()
    now, limit = call.clock.now(), params.get("limit", DEFAULT_LIMIT)
    first, last = _range(log, params.get("startTime"), params.get("endTime"))
    forward, position = _start(params, first, last)
    if forward:
        page = _first_of(lines_from(log, position, last, now), limit)
    else:
        page = _last_before(log, first, position, limit, now)
    if not page and "nextToken" not in params:
        position = start_of_line(log, position)  # start of an unfinished line
    after, before = (page[-1].end, page[0].position) if page else (position, position)
    return {
        "events": [
            {"timestamp": event.ms, "message": event.text, "ingestionTime": event.ms}
            for event in page
        ],
        "nextForwardToken": _token("f", after),
        "nextBackwardToken": _token("b", before),
    }


def event_bytes(event: LogEvent) -> int:
    """Returns what an event counts towards the page size."""
    return len(event.text.encode()) + _BYTES_PER_EVENT


def _range(log: StoredLog, start_ms: int | None, end_ms: int | None) -> tuple[int, int]:
    """Returns the log positions of a time range; print times never decrease."""
    first = log.start if start_ms is None else start_of_line(log, log.position_at(start_ms))
    last = log.end if end_ms is None else start_of_line(log, log.position_at(end_ms))
    return first, max(first, last)


def _start(params: dict[str, Any], first: int, last: int) -> tuple[bool, int]:
    """Returns whether to read forward, and the position to start from."""
    token = params.get("nextToken")
    if token is None:
        forward = params.get("startFromHead", False)
        return forward, first if forward else last
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise invalid("The specified nextToken is invalid.")
    position = int(match[2])
    # The oldest file may be deleted: continue with the oldest byte left.
    return (True, max(position, first)) if match[1] == "f" else (False, min(position, last))


def _first_of(events: Iterator[LogEvent], limit: int) -> list[LogEvent]:
    page: list[LogEvent] = []
    size = 0
    for event in events:
        if event.text:
            size += event_bytes(event)
            if page and size > LARGEST_PAGE_BYTES:
                break
            page.append(event)
            if len(page) == limit:
                break
    return page


def _last_before(log: StoredLog, first: int, end: int, limit: int, now: float) -> list[LogEvent]:
    """Returns the last lines before `end`, oldest first, searching back past empty ones."""
    window = BLOCK_BYTES
    while end > first:
        start = max(first, start_of_line(log, max(first, end - window)))
        events = [event for event in lines_from(log, start, end, now) if event.text]
        if len(events) < limit and window < LARGEST_PAGE_BYTES and start > first:
            window *= 2  # grow slowly: a megabyte may be half a million lines
            continue
        if events:
            return _last_that_fit(events[-limit:])
        end = start
    return []


def _last_that_fit(events: list[LogEvent]) -> list[LogEvent]:
    """Returns the last lines that fit on a page."""
    size = 0
    for index in range(len(events) - 1, -1, -1):
        size += event_bytes(events[index])
        if size > LARGEST_PAGE_BYTES and index < len(events) - 1:
            return events[index + 1 :]
    return events


def _token(direction: str, position: int) -> str:
    return f"{direction}/{position:056d}/s"


T = TypeVar("T")


def write_token(cursor: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()


def read_token(token: str, kind: type[T]) -> T:
    """Returns where the page ended; raises AwsError for a foreign token."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=kind)
    except (ValueError, msgspec.DecodeError):
        raise invalid("The specified nextToken is invalid.") from None
