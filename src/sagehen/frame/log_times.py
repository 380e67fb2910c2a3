"""When what is in a container's log was printed: a file beside it, written by the agent.

A header says of which file it is (a file keeps its inode when it is put aside), how much was
printed before it, and when the log was begun. Then each entry says when what lies behind an offset
was printed: entries are at least `RESOLUTION_MS` apart, and never go back.
"""

import struct
from pathlib import Path
from typing import NamedTuple

__all__ = ["ENTRY", "HEADER", "RESOLUTION_MS", "Header", "put_aside", "read_header", "times_path"]

RESOLUTION_MS = 10

_MAGIC = b"SGHTIME1"
# In this machine's order of bytes, so that entries can be looked at where they lie.
HEADER = struct.Struct("=8sQQQ")
ENTRY = struct.Struct("=QQ")
"""Offset in the file; milliseconds since the epoch."""


class Header(NamedTuple):
    """What an index begins with."""

    inode: int
    base: int
    """Bytes of the log that came before this file, all put aside or gone."""
    created_ms: int
    """When the log's first file was begun."""

    def pack(self) -> bytes:
        return HEADER.pack(_MAGIC, *self)


def read_header(data: bytes) -> Header | None:
    """None where it is none of ours, or not whole."""
    if len(data) < HEADER.size:
        return None
    magic, *fields = HEADER.unpack_from(data)
    return Header(*fields) if magic == _MAGIC else None


def put_aside(log: Path) -> Path:
    """Where a log that was full lies; its times beside it."""
    return log.with_name(log.name + ".1")


def times_path(log: Path) -> Path:
    """Where the times of a log lie."""
    return log.with_name(log.name + ".times")
