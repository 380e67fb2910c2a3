"""A gateway's periodic work: often while it has requests, once a second while idle."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from sagehen.base.clock import Clock

__all__ = ["IDLE_SECONDS", "Duties", "Duty", "keep_doing"]

log = logging.getLogger(__name__)

STEP_SECONDS = 0.05
"""the shortest interval"""
IDLE_SECONDS = 1.0
BUSY_SECONDS = 2.0
"""busy time after the last request, to clean up: containers may close idle connections after 2 s"""


class Duty(NamedTuple):
    """A periodic callback that never blocks."""

    seconds: float
    do: Callable[[], None]


class Duties:
    """Runs duties only once a second while idle, to save wake-ups.

    `is_busy`: whether requests are in flight.
    """

    def __init__(self, clock: Clock, duties: Sequence[Duty], is_busy: Callable[[], bool]) -> None:
        self._clock = clock
        self._duties = duties
        self._is_busy = is_busy
        self._stirred = asyncio.Event()
        self._steps = 0
        """since last idle"""
        self._steps_left = 0
        """until idle"""

    def stir(self) -> None:
        """Ends the idle pause. Called for most requests, so it must be cheap."""
        self._stirred.set()

    async def run(self) -> None:
        while True:
            await self.step()

    async def step(self) -> None:
        if self._stirred.is_set() or self._is_busy():
            self._stirred.clear()
            self._steps_left = round(BUSY_SECONDS / STEP_SECONDS)
        if self._steps_left:
            self._steps_left -= 1
            self._steps += 1
            await self._clock.sleep(STEP_SECONDS)
        else:
            self._steps = 0
            await self._rest()
        for duty in self._duties:
            if self._steps % max(1, round(duty.seconds / STEP_SECONDS)) == 0:
                self._do(duty)

    async def _rest(self) -> None:
        waits = [
            asyncio.ensure_future(self._stirred.wait()),
            asyncio.ensure_future(self._clock.sleep(IDLE_SECONDS)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    def _do(self, duty: Duty) -> None:
        try:
            duty.do()
        except Exception:
            log.exception("A duty of the gateway failed and is tried again.")


async def keep_doing(clock: Clock, seconds: float, do: Callable[[], Awaitable[None]]) -> None:
    """Pauses for `seconds` between calls."""
    while True:
        await clock.sleep(seconds)
        try:
            await do()
        except Exception:
            log.exception("A duty of the gateway failed and is tried again.")
