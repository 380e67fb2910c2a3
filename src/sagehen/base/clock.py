"""Clocks that are passed in, so that tests never wait, and a check for changes of the
wall clock."""

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

__all__ = ["SYSTEM", "Clock", "ClockJump", "ClockJumps", "SystemClock"]


class Clock(Protocol):
    def now(self) -> float:
        """Returns seconds since the epoch, to store or show."""

    def monotonic(self) -> float:
        """Returns seconds that never go back, for measuring."""

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clocks."""

    # The functions themselves: every request reads a clock several times.
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


SYSTEM: Clock = SystemClock()


MIN_JUMP_SECONDS = 2.0
"""shorter jumps are adjustments of the clock, or pauses of this process between two looks"""


@dataclass(frozen=True)
class ClockJump:
    """The clock was set by `seconds` (negative: back) after `since`. All times are of the new
    clock."""

    seconds: float
    since: float
    now: float


class ClockJumps:
    """Compares the wall clock with the monotonic one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_reading = (clock.now(), clock.monotonic())

    def look(self) -> ClockJump | None:
        wall, monotonic = self._last_reading
        self._last_reading = now, _ = self._clock.now(), self._clock.monotonic()
        passed = self._last_reading[1] - monotonic
        seconds = now - wall - passed
        if abs(seconds) < MIN_JUMP_SECONDS:
            return None
        return ClockJump(seconds=seconds, since=now - passed, now=now)
