"""What control has for the inference services."""

from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import Connection
from starlette.routing import Route

from sagehen.api.inference_service.app import InferenceServices
from sagehen.api.inference_service.counts import Counts
from sagehen.api.inference_service.housekeeping import Housekeeping
from sagehen.api.inference_service.intake import Intake
from sagehen.api.inference_service.jobs import Jobs
from sagehen.api.inference_service.service_paths import service_routes
from sagehen.api.inference_service.services import Services
from sagehen.api.inference_service.slots import Slots
from sagehen.api.training.creation import create_training_job_row
from sagehen.clock import SYSTEM
from sagehen.config import Settings
from sagehen.deferred.inference_sweeps import InferenceSweeps
from sagehen.domain.names import ArnMaker
from sagehen.domain.training import JobStatus, SecondaryStatus, TrainingJobRecord, Transition
from sagehen.objects.store import ObjectStore
from sagehen.store import training_jobs
from sagehen.store.database import Database
from sagehen.store.grouped import GroupedWrites
from sagehen.wire.sigv4 import Verifier

__all__ = ["Inference"]


class Inference:
    """`begin` is to be called once, before anything is served."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        writes: GroupedWrites,
        objects: ObjectStore,
    ) -> None:
        self._counts = Counts()
        slots = Slots(partial(_make_job, settings), SYSTEM)
        self.on_end = slots.on_end
        """What is to be done in the transaction in which a training job ends."""
        jobs = Jobs(database, writes, slots, _stop_job)
        intake = Intake(database, writes, objects, settings, slots, SYSTEM)
        self.app = InferenceServices(database, intake, jobs, self._counts)
        self._services = Services(database, writes, objects, settings, slots, _stop_job, SYSTEM)
        housekeeping = Housekeeping(slots, SYSTEM)
        self._sweeps = InferenceSweeps(writes, SYSTEM, housekeeping.stages, housekeeping.sweep)

    def begin(self) -> None:
        """Have the service of the settings in the state."""
        self._services.begin()

    def routes(self, verifier: Verifier) -> list[Route]:
        return service_routes(verifier, self._services)

    def measured(self) -> Mapping[str, Mapping[tuple[str, ...], float]]:
        """For Prometheus."""
        return self._counts.measured()

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        """To be run for as long as control lives."""
        return [self._sweeps.run()]


def _make_job(
    settings: Settings,
    connection: Connection,
    definition: dict[str, Any],
    tags: dict[str, str],
    now: float,
) -> TrainingJobRecord:
    arns = ArnMaker(settings.account_id, settings.region)
    return create_training_job_row(
        connection, definition, tags, settings=settings, arns=arns, now=now
    )


def _stop_job(connection: Connection, name: str, job_id: str) -> None:
    record = training_jobs.get_for_update(connection, name)
    if record is None or record.job_id != job_id or record.status is not JobStatus.IN_PROGRESS:
        return
    now = SYSTEM.now()
    last = msgspec.structs.replace(record.transitions[-1], ended_at=now)
    stopping = Transition(
        status=SecondaryStatus.STOPPING, started_at=now, message="Stopping the training job"
    )
    stopped = msgspec.structs.replace(
        record,
        status=JobStatus.STOPPING,
        stop_requested_at=now,
        modified_at=now,
        transitions=(*record.transitions[:-1], last, stopping),
    )
    training_jobs.update(connection, stopped)
