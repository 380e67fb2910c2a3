"""Tells loops whether anything was committed to the state since their last look."""

import sqlite3
import threading
from pathlib import Path
from urllib.parse import quote

from sagehen.base.clock import Clock

__all__ = ["Commits", "IdleCheck"]

LONGEST_IDLE_SECONDS = 30.0
"""seconds; a turn is due this often in any case, which bounds the harm of a missed commit"""


class Commits:
    """Sees every commit to an SQLite state, by any process.

    A look takes some microseconds and no disk: SQLite keeps a counter in shared memory.
    """

    def __init__(self, file: Path | None) -> None:
        """`file` is None for other databases, whose commits are not seen."""
        self._file = file
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._connections = 0
        """each connection counts from the same number on"""

    def version(self) -> tuple[int, int] | None:
        """Returns a pair that changes with each commit; None if unknown."""
        if self._file is None:
            return None
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = _connect(self._file)
                    self._connections += 1
                (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error:
                self._close()
                return None
            return self._connections, int(version)

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _connect(file: Path) -> sqlite3.Connection:
    # Never wait in the event loop.
    address = f"file:{quote(str(file))}?mode=rw"
    return sqlite3.connect(
        address, uri=True, timeout=0, isolation_level=None, check_same_thread=False
    )


class IdleCheck:
    """Tells a loop that was woken by time alone whether there can be new work; a turn's queries are
    wasted while nothing changes."""

    def __init__(self, commits: Commits, clock: Clock) -> None:
        self._commits = commits
        self._clock = clock
        self._version: tuple[int, int] | None = None
        """at the beginning of a turn that left nothing to do"""
        self._valid_until = 0.0
        """seconds, monotonic"""
        self._beginning: tuple[int, int] | None = None

    def begin(self) -> None:
        """Begins a turn, which may not see later commits."""
        self._version = None
        self._beginning = self._commits.version()

    def end(self) -> None:
        """Records that the turn left nothing to do."""
        self._version = self._beginning
        self._valid_until = self._clock.monotonic() + LONGEST_IDLE_SECONDS

    @property
    def is_idle(self) -> bool:
        if self._version is None or self._clock.monotonic() >= self._valid_until:
            return False
        return self._commits.version() == self._version
