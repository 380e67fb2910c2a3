"""A container's log on disk: up to two files, read as one by position.

A position counts bytes from the log's beginning, including deleted ones, so rotation does not
change it.
"""

import bisect
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sagehen.frame.log_times import ENTRY, HEADER, put_aside, read_header, times_path

__all__ = ["StoredLog", "created_ms", "open_log"]

_TRIES = 5
"""a log may be rotated while it is read"""


@dataclass(frozen=True)
class _File:
    """A snapshot of one of the log's files."""

    path: Path
    inode: int
    base: int
    """position of its first byte"""
    size: int
    created_ms: int
    modified_at: float
    offsets: Sequence[int]
    times_ms: Sequence[int]
    """print times from each offset on; neither sequence decreases"""

    @property
    def end(self) -> int:
        return self.base + self.size


@dataclass(frozen=True)
class StoredLog:
    """A snapshot of a log."""

    files: tuple[_File, ...]
    """oldest first, without gaps; at least one"""

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
        """Reads up to `count` bytes; `position` is not before `start`."""
        content = b""
        for file in self.files:
            at = position + len(content)
            if count > len(content) and file.base <= at < file.end:
                content += _read(file, at, count - len(content))
        return content

    def time_at(self, position: int) -> int:
        """Returns the byte's print time, in epoch milliseconds."""
        file = next((part for part in self.files if position < part.end), self.files[-1])
        index = bisect.bisect_right(file.offsets, position - file.base) - 1
        return file.times_ms[max(0, index)]

    def position_at(self, ms: int) -> int:
        """Returns the first position printed at `ms` or later, or `end`."""
        for file in self.files:
            index = bisect.bisect_left(file.times_ms, ms)
            if index < len(file.times_ms):
                return min(file.end, file.base + file.offsets[index])
        return self.end


def open_log(path: Path) -> StoredLog | None:
    """Opens the log whose newest file is `path`; returns None if there is none."""
    for _ in range(_TRIES):
        files = _look(path, lost_times=False)
        if files is not None:
            break
    else:
        files = _look(path, lost_times=True)
    return StoredLog(files) if files else None


def created_ms(path: Path) -> int:
    """Returns the start time in epoch milliseconds, or 0 if not recorded."""
    for file in (path, put_aside(path)):  # just after rotation, only the latter has it
        header = read_header(_bytes(times_path(file), HEADER.size))
        if header is not None:
            return header.created_ms
    return 0


def _look(path: Path, lost_times: bool) -> tuple[_File, ...] | None:
    """Returns a consistent set of files, or None during rotation.

    Args:
        lost_times: accept files without times, and use their modification time.
    """
    newest, oldest = _file(path), _file(put_aside(path))
    files = [file for file in (oldest, newest) if file is not None]
    if not lost_times and (
        len({file.inode for file in files}) < len(files) or not all(file.offsets for file in files)
    ):
        return None
    timed = [file if file.offsets else _without_times(file) for file in files]
    if len(timed) == 2 and timed[0].end != timed[1].base:
        timed = timed[1:]
    return tuple(timed)


def _file(path: Path) -> _File | None:
    """Leaves times empty if the recorded ones belong to another file."""
    try:
        status = path.stat()
    except OSError:
        return None
    data = _bytes(times_path(path))
    header = read_header(data)
    if header is None or header.inode != status.st_ino:
        return _File(path, status.st_ino, 0, status.st_size, 0, status.st_mtime, (), ())
    entry_bytes = (len(data) - HEADER.size) // ENTRY.size * ENTRY.size
    # Not unpacked: of hundreds of thousands of entries, few are read.
    entries = memoryview(data)[HEADER.size : HEADER.size + entry_bytes].cast("Q")
    return _File(
        path=path,
        inode=status.st_ino,
        base=header.base,
        size=status.st_size,
        created_ms=header.created_ms,
        modified_at=status.st_mtime,
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
                # After rotation, another file may have this name.
                if os.fstat(opened.fileno()).st_ino == file.inode:
                    opened.seek(position - file.base)
                    return opened.read(min(count, file.end - position))
        except OSError:
            continue
    return b""


def _bytes(path: Path, count: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError:
        return b""
