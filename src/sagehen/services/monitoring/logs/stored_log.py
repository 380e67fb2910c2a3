"""A container's log as it lies on disk: up to two files, read as one text by position.

A position counts bytes from the log's very first, also of what is gone: it stays what it is when
the file is put aside.
"""

import bisect
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sagehen.frame.log_times import ENTRY, HEADER, put_aside, read_header, times_path

__all__ = ["StoredLog", "created_ms", "open_log"]

_TRIES = 5
"""A log may be put aside while it is looked at."""


@dataclass(frozen=True)
class _File:
    """One of the log's files, as it was when it was looked at."""

    path: Path
    inode: int
    base: int
    """The position of its first byte."""
    size: int
    created_ms: int
    modified_at: float
    offsets: Sequence[int]
    times_ms: Sequence[int]
    """Of what lies at each offset and behind it; neither goes back."""

    @property
    def end(self) -> int:
        return self.base + self.size


@dataclass(frozen=True)
class StoredLog:
    """What there is of a log now; what is added later is not seen."""

    files: tuple[_File, ...]
    """The oldest first, without gaps; at least one."""

    @property
    def start(self) -> int:
        return self.files[0].base

    @property
    def end(self) -> int:
        return self.files[-1].end

    @property
    def created_ms(self) -> int:
        return self.files[-1].created_ms

    @property
    def modified_at(self) -> float:
        """Seconds since the epoch."""
        return self.files[-1].modified_at

    def read(self, position: int, count: int) -> bytes:
        """Up to `count` bytes from `position`, which is not before `start`; empty at the end."""
        found = b""
        for file in self.files:
            place = position + len(found)
            if count > len(found) and file.base <= place < file.end:
                found += _read(file, place, count - len(found))
        return found

    def time_at(self, position: int) -> int:
        """When the byte there was printed, in milliseconds since the epoch."""
        file = next((one for one in self.files if position < one.end), self.files[-1])
        place = bisect.bisect_right(file.offsets, position - file.base) - 1
        return file.times_ms[max(0, place)]

    def position_at(self, ms: int) -> int:
        """The first that was printed at `ms` or later; `end` where none was."""
        for file in self.files:
            place = bisect.bisect_left(file.times_ms, ms)
            if place < len(file.times_ms):
                return min(file.end, file.base + file.offsets[place])
        return self.end


def open_log(path: Path) -> StoredLog | None:
    """The log whose newest file is `path`; None where there is none."""
    for _ in range(_TRIES):
        files = _look(path, lost_times=False)
        if files is not None:
            break
    else:
        files = _look(path, lost_times=True)
    return StoredLog(files) if files else None


def created_ms(path: Path) -> int:
    """When a log was begun, in milliseconds since the epoch; 0 where nobody noted it."""
    for one in (path, put_aside(path)):  # Of a log that was just put aside, only the latter knows.
        header = read_header(_bytes(times_path(one), HEADER.size))
        if header is not None:
            return header.created_ms
    return 0


def _look(path: Path, lost_times: bool) -> tuple[_File, ...] | None:
    """A log's files; None where they do not go together, for one is just being put aside.

    Args:
        lost_times: do with when a file was last written, for its times will not be found.
    """
    newest, oldest = _file(path), _file(put_aside(path))
    found = [one for one in (oldest, newest) if one is not None]
    if not lost_times and (
        len({one.inode for one in found}) < len(found) or not all(one.offsets for one in found)
    ):
        return None
    timed = [one if one.offsets else _without_times(one) for one in found]
    if len(timed) == 2 and timed[0].end != timed[1].base:
        timed = timed[1:]
    return tuple(timed)


def _file(path: Path) -> _File | None:
    """Without times where those that are there are another file's."""
    try:
        found = path.stat()
    except OSError:
        return None
    data = _bytes(times_path(path))
    header = read_header(data)
    if header is None or header.inode != found.st_ino:
        return _File(path, found.st_ino, 0, found.st_size, 0, found.st_mtime, (), ())
    whole = (len(data) - HEADER.size) // ENTRY.size * ENTRY.size
    # Not taken apart: there may be hundreds of thousands, of which a few are looked at.
    entries = memoryview(data)[HEADER.size : HEADER.size + whole].cast("Q")
    return _File(
        path=path,
        inode=found.st_ino,
        base=header.base,
        size=found.st_size,
        created_ms=header.created_ms,
        modified_at=found.st_mtime,
        offsets=entries[0::2] if entries else (0,),
        times_ms=entries[1::2] if entries else (header.created_ms,),
    )


def _without_times(file: _File) -> _File:
    return _File(
        path=file.path,
        inode=file.inode,
        base=0,
        size=file.size,
        created_ms=0,
        modified_at=file.modified_at,
        offsets=(0,),
        times_ms=(int(file.modified_at * 1000),),
    )


def _read(file: _File, position: int, count: int) -> bytes:
    for path in (file.path, put_aside(file.path)):
        try:
            with path.open("rb") as opened:
                # It may have been put aside since, and under its name lies another.
                if os.fstat(opened.fileno()).st_ino == file.inode:
                    opened.seek(position - file.base)
                    return opened.read(min(count, file.end - position))
        except OSError:
            continue
    return b""


def _bytes(path: Path, most: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError:
        return b""
