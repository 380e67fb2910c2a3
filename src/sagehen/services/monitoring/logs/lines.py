"""Splits a log into events with position and print time.

Lines over the event limit are cut. An unfinished line becomes an event once nothing was added for a
while; later additions are separate events.
"""

import re
from collections.abc import Iterator

import msgspec

from sagehen.services.monitoring.logs.stored_log import StoredLog

__all__ = ["BLOCK_BYTES", "LONGEST_BYTES", "LogEvent", "lines_from", "start_of_line"]

LONGEST_BYTES = 256 * 1024
"""of an event's message"""
BLOCK_BYTES = 64 * 1024
SETTLED_SECONDS = 1.0
# A regular expression is faster than a loop: logs may have millions of empty lines.
_WRITTEN = re.compile(rb"(?:[^\r\n]|\r(?!\n))[^\n]*")


class LogEvent(msgspec.Struct, frozen=True):
    """A line, or a part of a very long one."""

    position: int
    end: int
    """position of the next event"""
    ms: int
    """print time, epoch milliseconds"""
    text: str
    """empty for empty lines, which readers skip"""


def lines_from(log: StoredLog, position: int, end: int, now: float) -> Iterator[LogEvent]:
    """Yields the lines from `position`, the start of a line, to `end`.

    A block of empty lines only yields the last, so that readers see progress.
    """
    at, unfinished = position, b""
    while at + len(unfinished) < end:
        block = log.read(at + len(unfinished), min(BLOCK_BYTES, end - at - len(unfinished)))
        if not block:
            break
        content = unfinished + block
        cut = content.rfind(b"\n") + 1
        match = None
        for match in _WRITTEN.finditer(content, 0, cut):
            yield from _cut(log, at + match.start(), match[0], 1)
        if cut and match is None:
            yield _event(log, at + cut - 1, b"", 1)
        at, unfinished = at + cut, content[cut:]
        while len(unfinished) >= LONGEST_BYTES:
            yield _event(log, at, unfinished[:LONGEST_BYTES], 0)
            at, unfinished = at + LONGEST_BYTES, unfinished[LONGEST_BYTES:]
    if unfinished and (at + len(unfinished) < log.end or now - log.modified_at >= SETTLED_SECONDS):
        yield _event(log, at, unfinished, 0)


def start_of_line(log: StoredLog, position: int) -> int:
    """Returns the start of the line that contains `position`."""
    first = max(log.start, position - LONGEST_BYTES)
    before = log.read(first, position - first)
    return first + before.rfind(b"\n") + 1


def _cut(log: StoredLog, at: int, content: bytes, ending: int) -> Iterator[LogEvent]:
    while len(content) > LONGEST_BYTES:
        yield _event(log, at, content[:LONGEST_BYTES], 0)
        at, content = at + LONGEST_BYTES, content[LONGEST_BYTES:]
    yield _event(log, at, content, ending)


def _event(log: StoredLog, at: int, content: bytes, ending: int) -> LogEvent:
    end = at + len(content) + ending
    text = content.removesuffix(b"\r").decode("utf-8", "replace")
    return LogEvent(at, end, log.time_at(end - 1), text)
