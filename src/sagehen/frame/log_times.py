"""The index of print times beside a container's log, written by the agent.

A header identifies the file by its inode, which rotation keeps. Each entry holds an offset and its
print time, ascending, at least `RESOLUTION_MS` apart.
"""

import struct
from pathlib import Path
from typing import NamedTuple

__all__ = ["ENTRY", "HEADER", "RESOLUTION_MS", "Header", "put_aside", "read_header", "times_path"]

RESOLUTION_MS = 10

_MAGIC = b"SGHTIME1"
# Native byte order: entries are read in place.
HEADER = struct.Struct("=8sQQQ")
ENTRY = struct.Struct("=QQ")
"""offset in the file; milliseconds since the epoch"""


class Header(NamedTuple):
    inode: int
    base: int
    """bytes of the log before this file"""
    created_ms: int
    """when the log's first file was begun"""

    def pack(self) -> bytes:
        return HEADER.pack(_MAGIC, *self)


def read_header(data: bytes) -> Header | None:
    """Returns None where the header is foreign or incomplete."""
    if len(data) < HEADER.size:
        return None
    magic, *fields = HEADER.unpack_from(data)
    return Header(*fields) if magic == _MAGIC else None


def put_aside(log: Path) -> Path:
    """Returns the path of the rotated log."""
    return log.with_name(log.name + ".1")


def times_path(log: Path) -> Path:
    return log.with_name(log.name + ".times")
