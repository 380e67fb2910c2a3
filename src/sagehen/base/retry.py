"""Retries while the object store, the database or the disk is unavailable, and computes
back-offs."""

import logging
import math
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sagehen.base.clock import Clock
from sagehen.base.errors import Unavailable

if TYPE_CHECKING:
    AWAY: tuple[type[Unavailable], type[OSError], type[Exception]]
    """like `away_errors()`, for modules that import SQLAlchemy anyway"""

__all__ = [
    "AWAY",
    "LONGEST_BACKOFF_SECONDS",
    "Backoff",
    "RetryPolicy",
    "away_errors",
    "backoff_seconds",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
LOG_INTERVAL_SECONDS = 10.0


def away_errors() -> tuple[type[Exception], ...]:
    """Returns the errors that a retry may cure. Call it in `except`: SQLAlchemy's errors count only
    once it is imported, which agents avoid."""
    database = sys.modules.get("sqlalchemy.exc")
    return (Unavailable, OSError, *((database.SQLAlchemyError,) if database else ()))


def __getattr__(name: str) -> Any:
    if name != "AWAY":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import sqlalchemy.exc  # noqa: F401

    return away_errors()


class RetryPolicy:
    """Retries for `seconds`; `waiter` names the waiting party in the log."""

    def __init__(self, clock: Clock, seconds: float, waiter: str = "Asynchronous requests") -> None:
        self._clock = clock
        self._seconds = seconds
        self._waiter = waiter
        self.on_wait: Callable[[str], None] = lambda reason: None
        """is told, as rarely as the log"""
        self._logged_at: float | None = None
        self._deadline = math.inf

    async def __call__(self, work: Callable[[], Awaitable[T]]) -> T:
        """Raises the last error after too long."""
        began = self._clock.monotonic()
        backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        while True:
            wait = backoff.next_seconds()
            try:
                return await work()
            except away_errors() as error:
                deadline = min(began + self._seconds, self._deadline)
                if self._clock.monotonic() + wait > deadline:
                    raise
                self._log_wait(error)
            await self._clock.sleep(wait)

    def limit(self, seconds: float) -> None:
        """Bounds all retries to `seconds` from now."""
        self._deadline = min(self._deadline, self._clock.monotonic() + seconds)

    def _log_wait(self, error: BaseException) -> None:
        """Rarely logged: a thousand may wait for the same."""
        now = self._clock.monotonic()
        if self._logged_at is None or now - self._logged_at >= LOG_INTERVAL_SECONDS:
            self._logged_at = now
            log.warning("%s wait: %s", self._waiter, error, extra={"action": "wait"})
            self.on_wait(str(error))


FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 60.0


def backoff_seconds(
    attempts: int,
    first: float = FIRST_BACKOFF_SECONDS,
    longest: float = LONGEST_BACKOFF_SECONDS,
    factor: float = 2.0,
) -> float:
    """Returns `first` for no earlier attempt, and `factor` times as much for each one, up to
    `longest`."""
    return min(longest, first * factor ** min(attempts, 32))


class Backoff:
    """The waits between attempts that fail in a row: each is `factor` times the last one, up to
    `longest`."""

    def __init__(self, first: float, longest: float, factor: float = 2.0) -> None:
        self._first = first
        self._longest = longest
        self._factor = factor
        self._attempts = 0

    def next_seconds(self) -> float:
        """Counts a failed attempt and returns how long to wait after it."""
        seconds = backoff_seconds(self._attempts, self._first, self._longest, self._factor)
        self._attempts += 1
        return seconds

    def reset(self) -> None:
        """The next wait is the first one again."""
        self._attempts = 0
