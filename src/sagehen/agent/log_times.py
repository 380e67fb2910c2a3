"""Writes down when what is in a log was printed; `domain/log_times.py` has the form."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from sagehen.domain.log_times import (
    ENTRY,
    HEADER,
    RESOLUTION_MS,
    Header,
    put_aside,
    read_header,
    times_path,
)

__all__ = ["LogTimes"]


class LogTimes:
    """The times of one log. Nothing here may fail the log itself: without room there are none.

    Not for several threads at once.
    """

    def __init__(self, log: Path, now: Callable[[], float]) -> None:
        self._log = log
        self._path = times_path(log)
        self._now = now
        self._file: BinaryIO | None = None
        self._header = Header(inode=0, base=0, created_ms=0)
        self._last_ms = 0
        self._is_first = True
        """The next entry is, of its file: it is made however short a time has passed."""
        self.size = 0
        """Of the file, in bytes."""

    def open(self, log: BinaryIO, log_size: int) -> None:
        """Go on with the times of a log file just opened, or begin them."""
        with contextlib.suppress(OSError):
            found = os.fstat(log.fileno())
            self._mend(found.st_ino)
            self._file = open(self._path, "a+b", buffering=0)  # noqa: SIM115
            if not self._goes_on(self._file, found.st_ino):
                self._begin(self._file, found.st_ino)
                if log_size:
                    self._add(0, int(found.st_mtime * 1000))

    def note(self, offset: int) -> None:
        """What comes at `offset` is printed now."""
        ms = max(self._last_ms, int(self._now() * 1000))
        if self._is_first or ms - self._last_ms >= RESOLUTION_MS:
            with contextlib.suppress(OSError):
                self._add(offset, ms)

    def put_aside(self, log_size: int) -> None:
        """The log's file, of that size, was put aside, and another is about to be opened."""
        with contextlib.suppress(OSError):
            self._path.replace(times_path(put_aside(self._log)))
        self._header = self._header._replace(base=self._header.base + log_size)
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _mend(self, inode: int) -> None:
        """Finish what a kill has left half done: the log was put aside, and not its times."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            header = read_header(file.read(HEADER.size))
        aside = put_aside(self._log)
        if header is None or header.inode == inode or not aside.exists():
            return
        found = aside.stat()
        if header.inode == found.st_ino:
            self._header = header
            self.put_aside(found.st_size)

    def _goes_on(self, file: BinaryIO, inode: int) -> bool:
        file.seek(0)
        header = read_header(file.read(HEADER.size))
        if header is None or header.inode != inode:
            return False
        self._header = header
        entries = (file.seek(0, os.SEEK_END) - HEADER.size) // ENTRY.size
        self.size = HEADER.size + entries * ENTRY.size
        file.truncate(self.size)  # An entry may have been cut short by a full disk.
        if entries:
            file.seek(self.size - ENTRY.size)
            self._last_ms = ENTRY.unpack(file.read(ENTRY.size))[1]
        self._is_first = entries == 0
        return True

    def _begin(self, file: BinaryIO, inode: int) -> None:
        created_ms = self._header.created_ms or int(self._now() * 1000)
        self._header = Header(inode, self._header.base, created_ms)
        file.truncate(0)
        file.write(self._header.pack())
        self.size = HEADER.size
        self._is_first = True

    def _add(self, offset: int, ms: int) -> None:
        if self._file is None:
            return
        self._file.write(ENTRY.pack(offset, ms))
        self.size += ENTRY.size
        self._last_ms, self._is_first = ms, False
