"""Time, passed in, so that tests never wait."""

import asyncio
import time
from typing import Protocol

__all__ = ["SYSTEM", "Clock", "SystemClock"]


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
