"""FilterLogEvents: the events of many streams, in the order of their times."""

import hashlib
import heapq
from collections.abc import Iterator
from typing import Any

import msgspec

from sagehen.api.call import Call
from sagehen.api.cloudwatch_logs.filter_patterns import read_filter
from sagehen.api.cloudwatch_logs.groups import Group, Stream, find_group, find_stream
from sagehen.api.cloudwatch_logs.lines import Line, lines_from, start_of_line
from sagehen.api.cloudwatch_logs.reading import DEFAULT_LIMIT, event_bytes
from sagehen.api.cloudwatch_logs.refusals import invalid, not_built
from sagehen.api.cloudwatch_logs.stored_log import open_log
from sagehen.api.cloudwatch_logs.tokens import read_token, write_token

__all__ = ["filter_log_events"]

MOST_STREAMS = 500
LARGEST_PAGE_BYTES = 2**20
MOST_READ_BYTES = 16 * 2**20
"""For one answer: a filter may want none of it, and then the page is empty, but not the last."""
BYTES_BESIDE = 200
"""That a line counts for besides its own: a log may be millions of lines of one letter."""
UNSETTLED_MS = 250
"""What is younger waits for the next call: a stream's events must not turn up behind those of
another that are younger, for who follows asks for what is younger still."""

COARSE_MS = 1000
"""File systems' clocks may be behind; an event is never younger by more than that."""


class _Place(msgspec.Struct, frozen=True, array_like=True, order=True):
    """An event among those of all streams."""

    ms: int
    stream: str
    position: int


def filter_log_events(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """One page of a group's events, of all its streams or some."""
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
            # There is more, so that the page is not the last.
            return {"events": events, "searchedLogStreams": [], "nextToken": write_token(last)}
        last = place
        read_bytes += read + BYTES_BESIDE
        if line.text and wanted(line.text):
            events.append(_event(place, line))
            page_bytes += event_bytes(line)
    return {"events": events, "searchedLogStreams": []}


def _streams(group: Group, params: dict[str, Any]) -> list[Stream]:
    """Those to be searched that may have something of the time asked for."""
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
    call: Call, streams: list[Stream], params: dict[str, Any], after: _Place | None
) -> Iterator[tuple[_Place, Line, int]]:
    """The events of all streams behind `after`, the oldest first, as `_of_stream` has them."""
    now = call.clock.now()
    since = max(params.get("startTime", 0), after.ms if after else 0)
    until = min(params.get("endTime", 2**63), int(now * 1000) - UNSETTLED_MS)
    each = [_of_stream(one, since, until, now) for one in streams]
    for found in heapq.merge(*each, key=lambda one: one[0]):
        if after is None or found[0] > after:
            yield found


def _of_stream(
    stream: Stream, since: int, until: int, now: float
) -> Iterator[tuple[_Place, Line, int]]:
    """Each with how many bytes it took: those of the empty lines before it too."""
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


def _event(place: _Place, line: Line) -> dict[str, Any]:
    stream_id = int.from_bytes(hashlib.sha256(place.stream.encode()).digest()[:8], "big")
    return {
        "logStreamName": place.stream,
        "timestamp": line.ms,
        "message": line.text,
        "ingestionTime": line.ms,
        "eventId": f"{line.ms:016d}{stream_id:020d}{line.position:020d}",
    }
