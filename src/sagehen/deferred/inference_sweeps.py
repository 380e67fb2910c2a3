"""Looks after the inference services now and then: slots that nobody holds, what is long over."""

import logging
from collections.abc import Callable

from sqlalchemy import Connection

from sagehen.clock import Clock
from sagehen.deferred.sweeping import keep_sweeping
from sagehen.store.grouped import GroupedWrites

__all__ = ["InferenceSweeps"]

log = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0


class InferenceSweeps:
    """
    Args:
        stages: where there is something to be looked after.
        sweep: looks after one stage; how many slots it freed that should have been free.
    """

    def __init__(
        self,
        writes: GroupedWrites,
        clock: Clock,
        stages: Callable[[Connection], list[str]],
        sweep: Callable[[Connection, str], int],
    ) -> None:
        self._writes = writes
        self._clock = clock
        self._stages = stages
        self._sweep = sweep

    async def run(self) -> None:
        """Sweep once a minute until cancelled. Two controls may: each locks what it looks at."""
        await keep_sweeping(self.sweep, SWEEP_SECONDS, self._clock, "inference services")

    async def sweep(self) -> int:
        """Look after each service; how many slots were freed."""
        freed = 0
        for stage in await self._writes.join(self._stages):
            freed += await self._sweep_stage(stage)
        if freed:
            log.error(
                "Slots were held by jobs that were over.", extra={"action": "sweep", "count": freed}
            )
        return freed

    async def _sweep_stage(self, stage: str) -> int:
        return await self._writes.join(lambda connection: self._sweep(connection, stage))
