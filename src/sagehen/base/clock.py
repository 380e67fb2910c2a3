"""Time, passed in, so that tests never wait.

Notices when somebody sets the clock.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

__all__ = ["SYSTEM", "Clock", "ClockJump", "ClockJumps", "SystemClock"]


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch, for what is stored or shown."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start that never go back, for measuring."""

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


SYSTEM: Clock = SystemClock()


LEAST_SECONDS = 2.0
"""What is less is the clock being adjusted, or this process not running between two looks at it."""


@dataclass(frozen=True)
class ClockJump:
    """The clock was set forward by `seconds`, or back where that is negative, at some time since
    `since`, as the new clock has it; by which it is `now`."""

    seconds: float
    since: float
    now: float


class ClockJumps:
    """Compares what the wall clock says has passed with what has."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = (clock.now(), clock.monotonic())

    def look(self) -> ClockJump | None:
        """Whether it was set since the last look."""
        (wall, monotonic), self._seen = self._seen, (self._clock.now(), self._clock.monotonic())
        now, passed = self._seen[0], self._seen[1] - monotonic
        seconds = now - wall - passed
        if abs(seconds) < LEAST_SECONDS:
            return None
        return ClockJump(seconds=seconds, since=now - passed, now=now)
