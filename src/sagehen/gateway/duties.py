"""What a gateway does beside answering: often while it has requests, once a second while not."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from sagehen.base.clock import Clock

__all__ = ["IDLE_SECONDS", "Duties", "Duty", "keep_doing"]

log = logging.getLogger(__name__)

STEP_SECONDS = 0.05
"""The shortest pace of a duty."""
IDLE_SECONDS = 1.0
BUSY_SECONDS = 2.0
"""How long the gateway counts as busy after its last request: what that left is cleared away, such
as connections to containers that close theirs after two seconds."""


class Duty(NamedTuple):
    """Something short that is done every so many seconds; it waits for nothing."""

    seconds: float
    do: Callable[[], None]


class Duties:
    """Looks after what is under way.

    An idle gateway would wake up dozens of times a second to find nothing: so it does everything
    once a second then, and `stir` ends the pause.

    Args:
        is_busy: whether anything is under way now.
    """

    def __init__(self, clock: Clock, duties: Sequence[Duty], is_busy: Callable[[], bool]) -> None:
        self._clock = clock
        self._duties = duties
        self._is_busy = is_busy
        self._stirred = asyncio.Event()
        self._steps = 0
        """Taken since the gateway was last idle."""
        self._steps_left = 0
        """Until it is idle again, if nothing comes."""

    def stir(self) -> None:
        """A request has come. Called for most requests: it does next to nothing."""
        self._stirred.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.step()

    async def step(self) -> None:
        """Wait for as long as may be, then do what is due."""
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
    """Do something that takes its time, `seconds` after it was done last, until cancelled."""
    while True:
        await clock.sleep(seconds)
        try:
            await do()
        except Exception:
            log.exception("A duty of the gateway failed and is tried again.")
