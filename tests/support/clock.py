"""A clock for tests."""

import asyncio
from dataclasses import dataclass
from math import isclose


@dataclass
class HandClock:
    """Stands still until it is moved, or somebody sleeps by it."""

    seconds: float = 0.0

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class SteppedClock:
    """Stands still until it is moved; who sleeps by it waits until it has been moved so far."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._monotonic = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self._slept = asyncio.Event()

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        sleeper = (self._monotonic + seconds, asyncio.get_running_loop().create_future())
        self._sleepers.append(sleeper)
        self._slept.set()
        try:
            await sleeper[1]
        finally:
            self._sleepers.remove(sleeper)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds
        self._monotonic += seconds
        for until, woken in self._sleepers:
            if until <= self._monotonic and not woken.done():
                woken.set_result(None)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back."""
        self._now += seconds

    async def sleeper(self, seconds: float) -> None:
        """Wait until somebody sleeps for just so long from now."""
        async with asyncio.timeout(120):
            while not any(isclose(until - self._monotonic, seconds) for until, _ in self._sleepers):
                self._slept.clear()
                await self._slept.wait()
