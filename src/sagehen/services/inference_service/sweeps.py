"""Sweeps once a minute: frees leaked slots, begins queued jobs, deletes old rows."""

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
    """Sweeps every stage in its own transaction; `sweep` returns the leaked slots."""

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
        """Safe with two controls: each sweep locks its service."""
        await keep_sweeping(self.sweep, SWEEP_SECONDS, self._clock, "inference services")

    async def sweep(self) -> int:
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
"""rows; bounds other writers' wait"""


class Housekeeping:
    def __init__(self, slots: Slots, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock

    def stages(self, connection: Connection) -> list[str]:
        """Includes stages of deleted services."""
        declared = {record.stage for record in inference_services.all_services(connection)}
        return sorted(declared | set(inference_jobs.stages(connection)))

    def sweep(self, connection: Connection, stage: str) -> int:
        """Returns the leaked slots; should be 0."""
        lost = self._slots.sweep(connection, stage)
        service = load_valid_service(connection, stage)
        settings = service.settings if service else InferenceServiceSettings.model_validate({})
        now = self._clock.now()
        inference_jobs.forget(connection, stage, now - settings.history_seconds, FORGOTTEN_AT_ONCE)
        inference_services.forget_answers(connection, stage, now - settings.idempotency_seconds)
        return lost
