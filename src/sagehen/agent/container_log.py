"""A container's log: bounded on disk however much the container prints, and never in its way."""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from sagehen.agent.log_times import LogTimes
from sagehen.domain.log_times import put_aside

__all__ = ["ContainerLog"]

READ_BYTES = 64 * 1024
KEPT_BYTES = 8 * 1024
KEPT_LINES = 40


class ContainerLog:
    """Copies a pipe to a file in a thread of its own, until every writer has closed it.

    A thread, because a slow disk must not hold up the agent's event loop. Where writing fails (a
    full disk), the output is dropped and still read, so that the container is never blocked.
    When it was printed is noted in a file beside it.
    """

    def __init__(self, path: Path, most_bytes: int, now: Callable[[], float] = time.time) -> None:
        """`most_bytes`: of the file and its times; one old file of each is kept."""
        self._path = path
        self._most_bytes = most_bytes
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._lock = threading.Lock()
        self._writing = threading.RLock()
        self._file: BinaryIO | None = None
        self._size = 0
        self._times = LogTimes(path, now)
        self.rotations = 0
        """How often its file was full."""
        self._thread: threading.Thread | None = None
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def follow(self, descriptor: int) -> None:
        """Take over the reading end of a pipe."""
        self._thread = threading.Thread(
            target=self._copy, args=(descriptor,), name=f"log {self._path.name}", daemon=True
        )
        self._thread.start()

    def settle(self, timeout_seconds: float) -> None:
        """Wait until all that was printed is kept: for after the container's end. Blocks."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def add(self, line: str) -> None:
        """Add a line of the platform's own, where that can be done; it is none of `last_lines`."""
        with contextlib.suppress(OSError):
            self._write(f"{line}\n".encode())
        self._close()

    def last_lines(self) -> list[str]:
        with self._lock:
            data = b"".join(self._tail)[-KEPT_BYTES:]
        return data.decode("utf-8", "replace").splitlines()[-KEPT_LINES:]

    def _copy(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb", buffering=0) as pipe:
            while data := pipe.read(READ_BYTES):
                self._keep(data)
                try:
                    self._write(data)
                except OSError:
                    self._close()
        self._close()

    def _keep(self, data: bytes) -> None:
        with self._lock:
            self._tail.append(data)
            self._tail_bytes += len(data)
            while self._tail_bytes - len(self._tail[0]) >= KEPT_BYTES:
                self._tail_bytes -= len(self._tail.popleft())

    def _write(self, data: bytes) -> None:
        with self._writing:
            self._open()
            if self._size and self._size + self._times.size + len(data) > self._most_bytes:
                # What cannot be put aside is not added to either: the bound holds.
                self._path.replace(put_aside(self._path))
                self.rotations += 1
                self._times.put_aside(self._size)
                self._close()
                self._open()
            assert self._file is not None
            self._times.note(self._size)
            self._size += self._file.write(data)

    def _open(self) -> None:
        if self._file is None:
            self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115
            self._size = self._file.tell()
            self._times.open(self._file, self._size)

    def _close(self) -> None:
        with self._writing:
            if self._file is not None:
                self._file.close()
                self._file = None
                self._times.close()
