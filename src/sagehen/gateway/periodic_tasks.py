"""A gateway's periodic work: often while it has requests, once a second while idle."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from sagehen.base.clock import Clock
from sagehen.base.concurrency import first_of

__all__ = ["IDLE_SECONDS", "PeriodicTask", "PeriodicTasks", "repeat"]

log = logging.getLogger(__name__)

STEP_SECONDS = 0.05
"""the shortest interval"""
IDLE_SECONDS = 1.0
BUSY_SECONDS = 2.0
"""busy time after the last request, to clean up: containers may close idle connections after 2 s"""


class PeriodicTask(NamedTuple):
    """A periodic callback that never blocks."""

    seconds: float
    run: Callable[[], None]


class PeriodicTasks:
    """Runs all tasks, but only once a second while idle, to save wake-ups.

    `is_busy`: whether requests are in flight.
    """

    def __init__(
        self, clock: Clock, tasks: Sequence[PeriodicTask], is_busy: Callable[[], bool]
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._is_busy = is_busy
        self._woken = asyncio.Event()
        self._steps = 0
        """since last idle"""
        self._steps_left = 0
        """until idle"""

    def wake(self) -> None:
        """Ends the idle pause. Called for most requests, so it must be cheap."""
        self._woken.set()

    async def run(self) -> None:
        while True:
            await self.step()

    async def step(self) -> None:
        if self._woken.is_set() or self._is_busy():
            self._woken.clear()
            self._steps_left = round(BUSY_SECONDS / STEP_SECONDS)
        if self._steps_left:
            self._steps_left -= 1
            self._steps += 1
            await self._clock.sleep(STEP_SECONDS)
        else:
            self._steps = 0
            await first_of(self._woken.wait(), self._clock.sleep(IDLE_SECONDS))
        for task in self._tasks:
            if self._steps % max(1, round(task.seconds / STEP_SECONDS)) == 0:
                self._run(task)

    def _run(self, task: PeriodicTask) -> None:
        try:
            task.run()
        except Exception:
            log.exception("A periodic task of the gateway failed and is tried again.")


async def repeat(clock: Clock, seconds: float, task: Callable[[], Awaitable[None]]) -> None:
    """Pauses for `seconds` between calls."""
    while True:
        await clock.sleep(seconds)
        try:
            await task()
        except Exception:
            log.exception("A periodic task of the gateway failed and is tried again.")
