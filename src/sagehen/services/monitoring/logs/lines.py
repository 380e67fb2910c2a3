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


def lines_from(log: StoredLog, position: int, until: int, now: float) -> Iterator[LogEvent]:
    """Yields the lines from `position`, the start of a line, to `until`.

    A block of empty lines only yields the last, so that readers see progress.
    """
    at, rest = position, b""
    while at + len(rest) < until:
        block = log.read(at + len(rest), min(BLOCK_BYTES, until - at - len(rest)))
        if not block:
            break
        held = rest + block
        cut = held.rfind(b"\n") + 1
        found = None
        for found in _WRITTEN.finditer(held, 0, cut):
            yield from _cut(log, at + found.start(), found[0], 1)
        if cut and found is None:
            yield _line(log, at + cut - 1, b"", 1)
        at, rest = at + cut, held[cut:]
        while len(rest) >= LONGEST_BYTES:
            yield _line(log, at, rest[:LONGEST_BYTES], 0)
            at, rest = at + LONGEST_BYTES, rest[LONGEST_BYTES:]
    if rest and (at + len(rest) < log.end or now - log.modified_at >= SETTLED_SECONDS):
        yield _line(log, at, rest, 0)


def start_of_line(log: StoredLog, position: int) -> int:
    """Returns the start of the line that contains `position`."""
    first = max(log.start, position - LONGEST_BYTES)
    before = log.read(first, position - first)
    return first + before.rfind(b"\n") + 1


def _cut(log: StoredLog, at: int, content: bytes, ending: int) -> Iterator[LogEvent]:
    while len(content) > LONGEST_BYTES:
        yield _line(log, at, content[:LONGEST_BYTES], 0)
        at, content = at + LONGEST_BYTES, content[LONGEST_BYTES:]
    yield _line(log, at, content, ending)


def _line(log: StoredLog, at: int, content: bytes, ending: int) -> LogEvent:
    end = at + len(content) + ending
    text = content.removesuffix(b"\r").decode("utf-8", "replace")
    return LogEvent(at, end, log.time_at(end - 1), text)
