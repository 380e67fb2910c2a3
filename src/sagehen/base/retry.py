"""Retries while the object store, the database or the disk is unavailable, and computes
back-offs."""

import logging
import math
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from sagehen.base.clock import Clock
from sagehen.base.errors import Unavailable

if TYPE_CHECKING:
    AWAY: tuple[type[Unavailable], type[OSError], type[Exception]]
    """like `away_errors()`, for modules that import SQLAlchemy anyway"""

__all__ = [
    "AWAY",
    "LONGEST_BACKOFF_SECONDS",
    "Retry",
    "RetryPolicy",
    "away_errors",
    "backoff_seconds",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
TELL_SECONDS = 10.0


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
    """Retries for `seconds`; `who` is the waiting party in the log."""

    def __init__(self, clock: Clock, seconds: float, who: str = "Asynchronous requests") -> None:
        self._clock = clock
        self._seconds = seconds
        self._who = who
        self._told_at: float | None = None
        self._until = math.inf

    async def __call__(self, work: Callable[[], Awaitable[T]]) -> T:
        """Raises the last error after too long."""
        began = self._clock.monotonic()
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                return await work()
            except away_errors() as error:
                until = min(began + self._seconds, self._until)
                if self._clock.monotonic() + wait > until:
                    raise
                self._tell(error)
            await self._clock.sleep(wait)
            wait = min(LONGEST_WAIT_SECONDS, 2 * wait)

    def limit(self, seconds: float) -> None:
        """Bounds all retries to `seconds` from now."""
        self._until = min(self._until, self._clock.monotonic() + seconds)

    def _tell(self, error: BaseException) -> None:
        """Rarely logged: a thousand may wait for the same."""
        now = self._clock.monotonic()
        if self._told_at is None or now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            log.warning("%s wait: %s", self._who, error, extra={"action": "wait"})


FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 60.0


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often a failed instance was retried, and when to retry next.

    In memory only: a restarted control begins with the shortest wait.
    """

    attempts: int
    at: float
    """seconds since the epoch"""


def backoff_seconds(
    attempts: int, first: float = FIRST_BACKOFF_SECONDS, longest: float = LONGEST_BACKOFF_SECONDS
) -> float:
    """Doubles the wait with each attempt, up to `longest`."""
    doublings = min(attempts, 32)
    return min(longest, first * 2.0**doublings)
