"""What is looked at now and then, for safety and for room."""

from sqlalchemy import Connection

from sagehen.api.inference_service.service import load_valid_service
from sagehen.api.inference_service.slots import Slots
from sagehen.clock import Clock
from sagehen.settings.inference_service import InferenceServiceSettings
from sagehen.store import inference_jobs, inference_services

__all__ = ["Housekeeping"]

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
