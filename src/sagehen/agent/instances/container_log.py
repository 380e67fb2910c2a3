"""Writes a container's log, bounded on disk, and a file of the times of its bytes (see
`frame/log_times.py`)."""

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from sagehen.frame.log_times import (
    ENTRY,
    HEADER,
    RESOLUTION_MS,
    Header,
    put_aside,
    read_header,
    times_path,
)

__all__ = ["ContainerLog", "LogTimes"]

log = logging.getLogger(__name__)


class LogTimes:
    """The times of one log. A full disk costs the times, never the log. Not thread-safe."""

    def __init__(self, log: Path, now: Callable[[], float]) -> None:
        self._log = log
        self._path = times_path(log)
        self._now = now
        self._file: BinaryIO | None = None
        self._header = Header(inode=0, base=0, created_ms=0)
        self._last_ms = 0
        self._is_first = True
        """the first entry of a file is written at once"""
        self.size = 0

    def open(self, log: BinaryIO, log_size: int) -> None:
        with contextlib.suppress(OSError):
            status = os.fstat(log.fileno())
            self._finish_rotation(status.st_ino)
            self._file = open(self._path, "a+b", buffering=0)  # noqa: SIM115
            if not self._continues(self._file, status.st_ino):
                self._begin(self._file, status.st_ino)
                if log_size:
                    self._add(0, int(status.st_mtime * 1000))

    def note(self, offset: int) -> None:
        ms = max(self._last_ms, int(self._now() * 1000))
        if self._is_first or ms - self._last_ms >= RESOLUTION_MS:
            with contextlib.suppress(OSError):
                self._add(offset, ms)

    def put_aside(self, log_size: int) -> None:
        with contextlib.suppress(OSError):
            self._path.replace(times_path(put_aside(self._log)))
        self._header = self._header._replace(base=self._header.base + log_size)
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _finish_rotation(self, inode: int) -> None:
        """Finishes a rotation that a kill interrupted before the times were renamed."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            header = read_header(file.read(HEADER.size))
        rotated = put_aside(self._log)
        if header is None or header.inode == inode or not rotated.exists():
            return
        status = rotated.stat()
        if header.inode == status.st_ino:
            self._header = header
            self.put_aside(status.st_size)

    def _continues(self, file: BinaryIO, inode: int) -> bool:
        file.seek(0)
        header = read_header(file.read(HEADER.size))
        if header is None or header.inode != inode:
            return False
        self._header = header
        entries = (file.seek(0, os.SEEK_END) - HEADER.size) // ENTRY.size
        self.size = HEADER.size + entries * ENTRY.size
        file.truncate(self.size)  # A full disk may have cut an entry short.
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


READ_BYTES = 64 * 1024
TAIL_BYTES = 8 * 1024
TAIL_LINES = 40


class ContainerLog:
    """Copies a container's output to a file in its own thread.

    A slow disk must not block the event loop. On write errors the output is dropped, so that the
    container never blocks.

    Args:
        max_bytes: bound on the file plus its times; one old file of each is kept.
        listener: called in that thread with all output, and b"" at the end.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        now: Callable[[], float] = time.time,
        listener: Callable[[bytes], None] | None = None,
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._listener = listener
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._tail_lock = threading.Lock()
        self._file_lock = threading.RLock()
        self._file: BinaryIO | None = None
        self._size = 0
        self._times = LogTimes(path, now)
        self.rotations = 0
        self._thread: threading.Thread | None = None
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def follow(self, descriptor: int) -> None:
        """Copies a pipe until every writer has closed it."""
        self.follow_chunks(_read_pipe(descriptor))

    def follow_chunks(self, chunks: Iterable[bytes]) -> None:
        """Copies `chunks`, which are produced in the log's thread."""
        self._thread = threading.Thread(
            target=self._copy, args=(chunks,), name=f"log {self._path.name}", daemon=True
        )
        self._thread.start()

    def settle(self, timeout_seconds: float) -> None:
        """Waits after the container's end until all output is written. Blocks."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def add(self, text: str) -> None:
        """Adds a platform line, if possible; not part of `last_lines`."""
        with contextlib.suppress(OSError):
            self._write(f"{text}\n".encode())
        self._close()

    def last_lines(self) -> list[str]:
        with self._tail_lock:
            data = b"".join(self._tail)[-TAIL_BYTES:]
        return data.decode("utf-8", "replace").splitlines()[-TAIL_LINES:]

    def _copy(self, chunks: Iterable[bytes]) -> None:
        # A container that prints nothing has a log, too: other logs are named after its start.
        with contextlib.suppress(OSError), self._file_lock:
            self._open()
        for data in chunks:
            self._add_to_tail(data)
            try:
                self._write(data)
            except OSError:
                self._close()
            self._notify(data)
        self._notify(b"")
        self._close()

    def _notify(self, data: bytes) -> None:
        if self._listener is not None:
            try:
                self._listener(data)
            except Exception:
                # A failing listener must not block the container.
                log.exception("The listener of a container's output failed and gets no more of it.")
                self._listener = None

    def _add_to_tail(self, data: bytes) -> None:
        with self._tail_lock:
            self._tail.append(data)
            self._tail_bytes += len(data)
            while self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES:
                self._tail_bytes -= len(self._tail.popleft())

    def _write(self, data: bytes) -> None:
        with self._file_lock:
            file = self._open()
            if self._size and self._size + self._times.size + len(data) > self._max_bytes:
                # If this fails, nothing is appended: the bound holds.
                self._path.replace(put_aside(self._path))
                self.rotations += 1
                self._times.put_aside(self._size)
                self._close()
                file = self._open()
            self._times.note(self._size)
            self._size += file.write(data)

    def _open(self) -> BinaryIO:
        if self._file is None:
            self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115
            self._size = self._file.tell()
            self._times.open(self._file, self._size)
        return self._file

    def _close(self) -> None:
        with self._file_lock:
            if self._file is not None:
                self._file.close()
                self._file = None
                self._times.close()


def _read_pipe(descriptor: int) -> Iterator[bytes]:
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        while data := pipe.read(READ_BYTES):
            yield data
