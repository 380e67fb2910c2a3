"""Whether anybody has committed to the state: for loops that look whether there is work."""

import sqlite3
import threading
from pathlib import Path
from urllib.parse import quote

from sagehen.base.clock import Clock

__all__ = ["Commits", "IdleCheck"]

LONGEST_IDLE_SECONDS = 30.0
"""A loop takes a turn so often whatever it knows: were that wrong, it would be for no longer."""


class Commits:
    """Sees every commit to a state in SQLite, of this process and of others.

    Looking takes some microseconds and no disk: SQLite keeps a count in shared memory.
    """

    def __init__(self, file: Path | None) -> None:
        """`file` is None for a state of another kind, whose commits are not seen."""
        self._file = file
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._connections = 0
        """How many there have been: each counts commits anew, from the same number on."""

    def version(self) -> tuple[int, int] | None:
        """Another pair of numbers after each commit; None where that cannot be told."""
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
    # It must never wait: it is asked in the event loop.
    address = f"file:{quote(str(file))}?mode=rw"
    return sqlite3.connect(
        address, uri=True, timeout=0, isolation_level=None, check_same_thread=False
    )


class IdleCheck:
    """Tells a loop that was woken by time alone whether there can be anything new to look at.

    A turn looks at everything there is, in several queries; while nobody does anything there is
    nothing to be found. The loop says after each turn what it knows; a hint goes before all that.
    """

    def __init__(self, commits: Commits, clock: Clock) -> None:
        self._commits = commits
        self._clock = clock
        self._version: tuple[int, int] | None = None
        """As of the beginning of the last turn, where nothing was left to do; else None."""
        self._until = 0.0
        """Monotonic: when the next turn is due all the same."""
        self._beginning: tuple[int, int] | None = None

    def begin(self) -> None:
        """A turn begins: what is committed from now on, it may not see."""
        self._version = None
        self._beginning = self._commits.version()

    def end(self) -> None:
        """The turn that began last found nothing to do, now or later."""
        self._version = self._beginning
        self._until = self._clock.monotonic() + LONGEST_IDLE_SECONDS

    @property
    def is_idle(self) -> bool:
        """Nothing was committed since a turn that found nothing to do."""
        if self._version is None or self._clock.monotonic() >= self._until:
            return False
        return self._commits.version() == self._version
