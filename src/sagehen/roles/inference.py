"""What control has for the inference services."""

from collections.abc import Coroutine, Mapping
from typing import Any

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
from sagehen.api.own_site import OwnSite
from sagehen.api.request_body import BodyBudget
from sagehen.api.training.creation import create_training_job_row
from sagehen.api.training.stopping import stop_training_job_row
from sagehen.clock import SYSTEM
from sagehen.deferred.inference_sweeps import InferenceSweeps
from sagehen.domain.names import ArnMaker
from sagehen.domain.training import TrainingJobRecord
from sagehen.objects.store import ObjectStore
from sagehen.settings import Settings
from sagehen.store import training_jobs
from sagehen.store.database import Database
from sagehen.store.grouped import GroupedWrites

__all__ = ["Inference"]


class Inference:
    """`begin` is to be called once, before anything is served."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        writes: GroupedWrites,
        objects: ObjectStore,
        site: OwnSite,
        bodies: BodyBudget,
    ) -> None:
        self._counts = Counts()
        training = _TrainingJobs(settings)
        slots = Slots(training.make, SYSTEM)
        self.on_end = slots.on_end
        """What is to be done in the transaction in which a training job ends."""
        jobs = Jobs(database, writes, slots, training.stop)
        intake = Intake(database, writes, objects, settings, slots, SYSTEM)
        self.answers = InferenceServices(database, intake, jobs, self._counts, site, bodies).answers
        """Whether a request was a service's; then it is answered."""
        self._services = Services(database, writes, objects, settings, slots, training.stop, SYSTEM)
        housekeeping = Housekeeping(slots, SYSTEM)
        self._sweeps = InferenceSweeps(writes, SYSTEM, housekeeping.stages, housekeeping.sweep)

    def begin(self) -> None:
        """Have the service of the settings in the state."""
        self._services.begin()

    def routes(self) -> list[Route]:
        return service_routes(self._services)

    def measured(self) -> Mapping[str, Mapping[tuple[str, ...], float]]:
        """For Prometheus."""
        return self._counts.measured()

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        """To be run for as long as control lives."""
        return [self._sweeps.run()]


class _TrainingJobs:
    """Training jobs, made and stopped in the transactions of others."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._arns = ArnMaker.of(settings)

    def make(
        self, connection: Connection, definition: dict[str, Any], tags: dict[str, str], now: float
    ) -> TrainingJobRecord:
        return create_training_job_row(
            connection, definition, tags, settings=self._settings, arns=self._arns, now=now
        )

    def stop(self, connection: Connection, name: str, job_id: str) -> None:
        record = training_jobs.get_for_update(connection, name)
        if record is not None and record.job_id == job_id:
            stop_training_job_row(connection, record, self._arns, SYSTEM.now())
