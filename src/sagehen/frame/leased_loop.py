"""A loop that one control at a time runs, woken by hints and by time.

wake → hold the lease → take a turn → rest until the next wake

A timed wake takes no turn if nothing was left to do and nothing was committed since.
"""

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from sagehen.base.clock import Clock
from sagehen.base.concurrency import Wake, first_of
from sagehen.base.errors import SagehenError
from sagehen.base.retry import AWAY, Backoff
from sagehen.state.commits import IdleCheck
from sagehen.state.database import Database
from sagehen.state.leadership import Leadership
from sagehen.state.leases import LeaseLost

__all__ = ["LONGEST_REST_SECONDS", "LeasedLoop", "keep_sweeping"]

log = logging.getLogger(__name__)

LONGEST_REST_SECONDS = 1.0
FIRST_ERROR_SECONDS = 0.1
LONGEST_ERROR_SECONDS = 10.0


class LeasedLoop(ABC):
    """The base of the reconcile loops for endpoints and training jobs."""

    owns_agent = True
    """Nobody else runs anything on this control's agent, so that it ends what is there when another
    control leads. False in a cluster, whose nodes go on under each leader."""

    def __init__(
        self, database: Database, clock: Clock, lease_name: str, leadership: Leadership
    ) -> None:
        self.first_look = asyncio.Event()
        """set when the first turn has ended, well or not"""
        self._clock = clock
        self._lease = leadership.lease(lease_name)
        self._wake = Wake()
        self._idle = IdleCheck(database.commits, clock)
        self._due_at = math.inf
        """when a turn is due though nothing was committed; seconds, monotonic"""
        self._waits = False
        """another control holds the lease, and this is logged"""
        self._backoff = Backoff(FIRST_ERROR_SECONDS, LONGEST_ERROR_SECONDS)
        leadership.on_change(self.hint)
        database.commits.on_change(self.hint)

    @abstractmethod
    def companions(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Returns what runs beside the loop, until the loop ends."""

    @abstractmethod
    async def step(self) -> float | None:
        """Returns the seconds until the next step, or None if nothing is left to do until a change.
        Raises LeaseLost."""

    def due_in(self, seconds: float) -> None:
        """Has a turn taken then, for a step that leaves nothing to do before: else the loop would
        look each second."""
        self._due_at = self._clock.monotonic() + seconds

    async def stand_by(self) -> None:  # noqa: B027
        """Does this control's own duties while another control reconciles."""

    def hint(self) -> None:
        """Wakes the loop. Safe from any thread."""
        self._wake.hint()

    async def run(self) -> None:
        self._wake.begin()
        companions = [asyncio.create_task(companion) for companion in self.companions()]
        try:
            while True:
                seconds = await self._turn_or_back_off()
                await first_of(self._wake.wait(), self._clock.sleep(seconds))
        finally:
            for companion in companions:
                companion.cancel()
            await asyncio.gather(*companions, return_exceptions=True)
            await self._lease.let_go()

    async def _turn_or_back_off(self) -> float:
        """Returns the seconds until the next turn."""
        try:
            is_idle = self._until_due() > 0 and self._idle.is_idle
            if not self._wake.is_set and is_idle and await self._hold_lease():
                return self._until_due()
            try:
                wait = await self.turn()
            finally:
                self.first_look.set()
        except LeaseLost:
            self._lease.lose()
            return LONGEST_REST_SECONDS
        except Exception as error:
            wait = self._backoff.next_seconds()
            extra = {"action": "reconcile_failed", "wait_seconds": wait}
            # Expected errors need no traceback.
            trace = not isinstance(error, (SagehenError, OSError))
            log.error(
                "Reconciling failed and is tried again: %s", error, exc_info=trace, extra=extra
            )
            # A hint does not shorten this wait: instant failures would be retried without pause.
            await self._clock.sleep(wait)
            return 0
        self._backoff.reset()
        return wait

    async def turn(self) -> float:
        """Steps if the lease is held; returns the seconds until the next turn. Raises LeaseLost."""
        self._wake.clear()
        self._idle.begin()
        self._due_at = math.inf
        if not await self._hold_lease():
            await self.stand_by()
            return LONGEST_REST_SECONDS
        wait = await self.step()
        if wait is None:
            self._idle.end()
            return self._until_due()
        return min(wait, LONGEST_REST_SECONDS)

    def _until_due(self) -> float:
        """Returns how long to rest at most."""
        return max(0.0, min(LONGEST_REST_SECONDS, self._due_at - self._clock.monotonic()))

    async def _hold_lease(self) -> bool:
        held = await self._lease.hold()
        if not held and not self._waits:
            extra = {"action": "stand_by", "lease": self._lease.name}
            log.info("Another control reconciles; this one waits.", extra=extra)
        self._waits = not held
        return held


async def keep_sweeping(
    sweep: Callable[[], Awaitable[object]], seconds: float, clock: Clock, title: str
) -> None:
    """Sweeps every `seconds` until cancelled; failures are logged and retried. `title` is for the
    log."""
    extra = {"action": "sweep"}
    while True:
        try:
            await sweep()
        except AWAY as error:
            log.error("The %s cannot be swept: %s", title, error, extra=extra)
        except Exception:
            log.exception("Sweeping the %s failed and is tried again.", title, extra=extra)
        await clock.sleep(seconds)
