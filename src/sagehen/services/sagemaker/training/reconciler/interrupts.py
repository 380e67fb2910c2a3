"""Interrupts running jobs, as SageMaker does when it takes spot capacity back."""

import asyncio

from sagehen.base.errors import Conflict, NotFound
from sagehen.frame.job_specs import JobOutcome, StopRequest
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.reconciler.loop import JobAgent
from sagehen.services.sagemaker.training.records import SecondaryStatus, TrainingJobRecord
from sagehen.state.database import Database

__all__ = ["Interrupts"]


class Interrupts:
    """Interrupts jobs; every method raises Unavailable while the agent is away."""

    def __init__(self, database: Database, agent: JobAgent) -> None:
        self._database = database
        self._agent = agent

    async def interrupt_job(self, name: str) -> str:
        """Interrupt a job, spot or not; returns its name as it was created.

        Raises:
            NotFound: there is no such job.
            Conflict: its code is not running.
        """
        record = await asyncio.to_thread(self._get, name)
        if record is None:
            raise NotFound(f"There is no training job {name}.")
        if not _can_be_interrupted(record) or not await self._interrupt(record):
            raise Conflict(f"The training job {record.name} is {record.secondary}: it is not run.")
        return record.name

    async def interrupt_spot_jobs(self, count: int | None) -> list[str]:
        """Interrupt `count` spot jobs, or all; returns their names. The newest go first: they lose
        least."""
        running = await asyncio.to_thread(self._running)
        spot = [job for job in running if job.spot and _can_be_interrupted(job)]
        spot.sort(key=_begun_at, reverse=True)
        return [job.name for job in spot[:count] if await self._interrupt(job)]

    async def _interrupt(self, record: TrainingJobRecord) -> bool:
        try:
            await self._agent.stop_job(
                record.attempt_id, StopRequest(outcome=JobOutcome.INTERRUPTED)
            )
        except NotFound:
            return False
        return True

    def _get(self, name: str) -> TrainingJobRecord | None:
        with self._database.read() as connection:
            return training_jobs.get(connection, name)

    def _running(self) -> list[TrainingJobRecord]:
        with self._database.read() as connection:
            return training_jobs.active(connection)


def _can_be_interrupted(record: TrainingJobRecord) -> bool:
    return (
        record.stage is JobStage.ACTIVE
        and record.status is JobStatus.IN_PROGRESS
        and record.secondary is not SecondaryStatus.UPLOADING
    )


def _begun_at(record: TrainingJobRecord) -> float:
    return max(
        transition.started_at
        for transition in record.transitions
        if transition.status is SecondaryStatus.STARTING
    )
