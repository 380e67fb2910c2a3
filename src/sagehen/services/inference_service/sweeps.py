"""Looks after the inference services now and then: slots that nobody holds, what is long over.

What is looked at now and then, for safety and for room.
"""

import logging
from collections.abc import Callable

from sqlalchemy import Connection

from sagehen.base.clock import Clock
from sagehen.base.settings.inference_service import InferenceServiceSettings
from sagehen.frame.leased_loop import keep_sweeping
from sagehen.services.inference_service import (
    job_store as inference_jobs,
)
from sagehen.services.inference_service import (
    service_store as inference_services,
)
from sagehen.services.inference_service.service import load_valid_service
from sagehen.services.inference_service.slots import Slots
from sagehen.state.group_commit import GroupCommit

__all__ = ["Housekeeping", "InferenceSweeps"]

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
        writes: GroupCommit,
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


FORGOTTEN_AT_ONCE = 500
"""Few enough that nobody waits for the transaction."""


class Housekeeping:
    def __init__(self, slots: Slots, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock

    def stages(self, connection: Connection) -> list[str]:
        """Where there is something to be looked after: services, and jobs whose service is gone."""
        there = {record.stage for record in inference_services.all_services(connection)}
        return sorted(there | set(inference_jobs.stages(connection)))

    def sweep(self, connection: Connection, stage: str) -> int:
        """Free slots that nobody holds, begin who waits, forget what is long over.

        How many slots that were: there should never be any.
        """
        lost = self._slots.sweep(connection, stage)
        service = load_valid_service(connection, stage)
        settings = service.settings if service else InferenceServiceSettings.model_validate({})
        now = self._clock.now()
        inference_jobs.forget(connection, stage, now - settings.history_seconds, FORGOTTEN_AT_ONCE)
        inference_services.forget_answers(connection, stage, now - settings.idempotency_seconds)
        return lost
