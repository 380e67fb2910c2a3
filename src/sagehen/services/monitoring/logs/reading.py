"""GetLogEvents: pages of one stream, forward or backward, with tokens that contain log
positions."""

import base64
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from sagehen.frame.context import RequestContext
from sagehen.services.monitoring.logs.errors import invalid, no_stream
from sagehen.services.monitoring.logs.groups import find_group, find_stream
from sagehen.services.monitoring.logs.lines import BLOCK_BYTES, LogEvent, lines_from, start_of_line
from sagehen.services.monitoring.logs.stored_log import StoredLog, open_log

__all__ = ["DEFAULT_LIMIT", "event_bytes", "get_log_events", "read_token", "write_token"]

DEFAULT_LIMIT = 10_000
LARGEST_PAGE_BYTES = 2**20
_BYTES_BESIDE = 26
"""counted by CloudWatch besides the message"""
_TOKEN = re.compile(r"([fb])/(\d{1,56})/s")


def get_log_events(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Returns one page of events; at the end of the stream, the token returned is the one given."""
    log = open_log(find_stream(find_group(call, params), params["logStreamName"]).path)
    if log is None:
        raise no_stream()
    now, limit = call.clock.now(), params.get("limit", DEFAULT_LIMIT)
    first, until = _range(log, params.get("startTime"), params.get("endTime"))
    forward, place = _place(params, first, until)
    if forward:
        page = _first_of(lines_from(log, place, until, now), limit)
    else:
        page = _last_before(log, first, place, limit, now)
    if not page and "nextToken" not in params:
        place = start_of_line(log, place)  # start of an unfinished line
    behind, before = (page[-1].end, page[0].position) if page else (place, place)
    return {
        "events": [
            {"timestamp": one.ms, "message": one.text, "ingestionTime": one.ms} for one in page
        ],
        "nextForwardToken": _token("f", behind),
        "nextBackwardToken": _token("b", before),
    }


def event_bytes(line: LogEvent) -> int:
    """Returns what an event counts towards the page size."""
    return len(line.text.encode()) + _BYTES_BESIDE


def _range(log: StoredLog, start_ms: int | None, end_ms: int | None) -> tuple[int, int]:
    """Returns the log positions of a time range; print times never decrease."""
    first = log.start if start_ms is None else start_of_line(log, log.position_at(start_ms))
    until = log.end if end_ms is None else start_of_line(log, log.position_at(end_ms))
    return first, max(first, until)


def _place(params: dict[str, Any], first: int, until: int) -> tuple[bool, int]:
    """Returns whether to read forward, and the position to start from."""
    token = params.get("nextToken")
    if token is None:
        forward = params.get("startFromHead", False)
        return forward, first if forward else until
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise invalid("The specified nextToken is invalid.")
    place = int(found[2])
    # The oldest file may be deleted: continue with the oldest byte left.
    return (True, max(place, first)) if found[1] == "f" else (False, min(place, until))


def _first_of(lines: Iterator[LogEvent], limit: int) -> list[LogEvent]:
    page: list[LogEvent] = []
    size = 0
    for line in lines:
        if line.text:
            size += event_bytes(line)
            if page and size > LARGEST_PAGE_BYTES:
                break
            page.append(line)
            if len(page) == limit:
                break
    return page


def _last_before(log: StoredLog, first: int, until: int, limit: int, now: float) -> list[LogEvent]:
    """Returns the last lines before `until`, oldest first, searching back past empty ones."""
    window = BLOCK_BYTES
    while until > first:
        start = max(first, start_of_line(log, max(first, until - window)))
        lines = [one for one in lines_from(log, start, until, now) if one.text]
        if len(lines) < limit and window < LARGEST_PAGE_BYTES and start > first:
            window *= 2  # grow slowly: a megabyte may be half a million lines
            continue
        if lines:
            return _fitting(lines[-limit:])
        until = start
    return []


def _fitting(lines: list[LogEvent]) -> list[LogEvent]:
    """Returns the last lines that fit on a page."""
    size = 0
    for place in range(len(lines) - 1, -1, -1):
        size += event_bytes(lines[place])
        if size > LARGEST_PAGE_BYTES and place < len(lines) - 1:
            return lines[place + 1 :]
    return lines


def _token(direction: str, place: int) -> str:
    return f"{direction}/{place:056d}/s"


T = TypeVar("T")


def write_token(place: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def read_token(token: str, kind: type[T]) -> T:
    """Returns where the page ended; raises AwsError for a foreign token."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=kind)
    except (ValueError, msgspec.DecodeError):
        raise invalid("The specified nextToken is invalid.") from None
