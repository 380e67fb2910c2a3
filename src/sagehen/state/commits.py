"""Tells loops whether anything was committed to the state since their last look."""

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from sagehen.base.clock import Clock

__all__ = ["Commits", "IdleCheck"]

LONGEST_IDLE_SECONDS = 30.0
"""seconds; a turn is due this often in any case, which bounds the harm of a missed commit"""


Version = tuple[int, int]


class Commits:
    """Sees every commit to the state, by any process.

    In SQLite a look takes some microseconds and no disk: it keeps a counter in shared memory. In
    PostgreSQL `Leadership` notes the version each second.
    """

    def __init__(self, file: Path | None) -> None:
        """`file` is None for PostgreSQL."""
        self._file = file
        self._noted: Version | None = None
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._connections = 0
        """each connection counts from the same number on"""

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after commits that `note` has told of; never in SQLite."""
        self._listeners.append(listener)

    def note(self, version: Version | None) -> None:
        """Notes what a look at PostgreSQL has seen; None if it cannot be looked at."""
        before, self._noted = self._noted, version
        if version is not None and version != before:
            for listener in self._listeners:
                listener()

    def version(self) -> Version | None:
        """Returns a pair that changes with each commit, in PostgreSQL up to a second later; None if
        unknown."""
        if self._file is None:
            return self._noted
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
        self._version: Version | None = None
        """at the beginning of a turn that left nothing to do"""
        self._valid_until = 0.0
        """seconds, monotonic"""
        self._beginning: Version | None = None

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
