"""Tells loops whether anything was committed to the state since they last looked."""

import sqlite3
import threading
from pathlib import Path
from urllib.parse import quote

from sagehen.base.clock import Clock

__all__ = ["Commits", "IdleCheck"]

LONGEST_IDLE_SECONDS = 30.0
"""seconds; a loop takes a turn this often in any case, which bounds the harm of a missed commit"""


class Commits:
    """Sees every commit to an SQLite state, of this process and of others.

    A look takes some microseconds and no disk access: SQLite keeps a counter in shared memory.
    """

    def __init__(self, file: Path | None) -> None:
        """`file` is None for another database, whose commits are not seen."""
        self._file = file
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._connections = 0
        """connections made so far: each counts commits from the same number on"""

    def version(self) -> tuple[int, int] | None:
        """Returns a pair that differs after each commit; None where that is unknown."""
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
    # Never wait: this is called in the event loop.
    address = f"file:{quote(str(file))}?mode=rw"
    return sqlite3.connect(
        address, uri=True, timeout=0, isolation_level=None, check_same_thread=False
    )


class IdleCheck:
    """Tells a loop that was woken by time alone whether there can be new work.

    A turn runs several queries, which is wasted while nothing changes. The loop calls `begin` and
    `end` around its turns; a hint overrides this check.
    """

    def __init__(self, commits: Commits, clock: Clock) -> None:
        self._commits = commits
        self._clock = clock
        self._version: tuple[int, int] | None = None
        """version at the beginning of the last turn if that left nothing to do, else None"""
        self._until = 0.0
        """seconds, monotonic: when the next turn is due in any case"""
        self._beginning: tuple[int, int] | None = None

    def begin(self) -> None:
        """Begins a turn, which may not see later commits."""
        self._version = None
        self._beginning = self._commits.version()

    def end(self) -> None:
        """Records that the turn found nothing to do, now or later."""
        self._version = self._beginning
        self._until = self._clock.monotonic() + LONGEST_IDLE_SECONDS

    @property
    def is_idle(self) -> bool:
        """Returns whether nothing was committed since a turn that found nothing to do."""
        if self._version is None or self._clock.monotonic() >= self._until:
            return False
        return self._commits.version() == self._version
