"""Gives slots to jobs and frees them when jobs end.

Slots are counted from rows, under the lock of the service's row, in the transaction that makes the
training job: no slot is taken twice or leaks. The transaction that ends a training job frees its
slot, publishes its notice and begins the next job, so each happens once.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.base.clock import Clock
from sagehen.base.settings.inference_service import InferenceServiceSettings
from sagehen.services.inference_service import job_store as inference_jobs
from sagehen.services.inference_service.errors import Failed, Full
from sagehen.services.inference_service.job_definition import make_tags
from sagehen.services.inference_service.notices import ensure_topic, notice_of
from sagehen.services.inference_service.records import InferenceJobRecord, InferenceState
from sagehen.services.inference_service.service import (
    Service,
    load_valid_service,
    undeclared_reason,
)
from sagehen.services.messaging.sns import topic_store as topics
from sagehen.services.sagemaker.job_tables import JobStatus
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.records import SecondaryStatus, TrainingJobRecord
from sagehen.state.group_commit import attempt
from sagehen.wire.errors import AwsError

__all__ = [
    "MakeJob",
    "Slots",
    "ended_by",
    "finish",
    "lost_ending",
    "refused_ending",
    "removed_ending",
]

log = logging.getLogger(__name__)

_RESULTS = ("output.tar.gz", "data/", "model.tar.gz", "model/")
"""results in a job's output folder, preferred first"""


def ended_by(job: InferenceJobRecord, training: TrainingJobRecord) -> InferenceJobRecord:
    return msgspec.structs.replace(
        job,
        state=InferenceState.ENDED,
        status=training.status,
        secondary=training.secondary,
        started_at=training.started_at,
        ended_at=training.ended_at,
        failure_reason=training.failure_reason,
        result_uri=_result_uri(training),
    )


def removed_ending(job: InferenceJobRecord, now: float) -> InferenceJobRecord:
    return msgspec.structs.replace(
        job,
        state=InferenceState.ENDED,
        status=JobStatus.STOPPED,
        secondary=SecondaryStatus.STOPPED,
        ended_at=now,
        failure_reason="It was removed from the queue before it began.",
    )


def refused_ending(job: InferenceJobRecord, reason: str, now: float) -> InferenceJobRecord:
    return _failed(job, f"The training job could not be created: {reason}"[:1024], now)


def lost_ending(job: InferenceJobRecord, now: float) -> InferenceJobRecord:
    return _failed(job, "The training job is gone.", now)


def finish(
    connection: Connection, service: Service | None, job: InferenceJobRecord, now: float
) -> None:
    """Saves an ended job and publishes its notice, also where its service was deleted (None)."""
    if service is None or str(job.status) in service.settings.notify:
        _, error = attempt(connection, lambda connection: _publish(connection, service, job, now))
        if error is not None:
            # Save the end, whatever is wrong with the topic.
            log.error("A notice is lost.", exc_info=error, extra=_log_fields(job))
        else:
            job = msgspec.structs.replace(job, notice_id=f"{job.job_name}:{job.status}")
    inference_jobs.save(connection, job)


def _publish(
    connection: Connection, service: Service | None, job: InferenceJobRecord, now: float
) -> None:
    notice = notice_of(job, now)
    if topics.publish(connection, notice):
        return
    if service is None:
        log.warning("A notice had no topic to go to.", extra=_log_fields(job))
        return
    log.warning("The topic was gone, and is made again.", extra=_log_fields(job))
    ensure_topic(connection, service, job.topic_arn, now)
    topics.publish(connection, notice)


def _result_uri(training: TrainingJobRecord) -> str | None:
    """Prefers /opt/ml/output/data to the model."""
    name = next((result for result in _RESULTS if result in training.artifacts), None)
    return None if name is None else f"{training.output_folder}/{name}"


def _failed(job: InferenceJobRecord, reason: str, now: float) -> InferenceJobRecord:
    return msgspec.structs.replace(
        job,
        state=InferenceState.ENDED,
        status=JobStatus.FAILED,
        secondary=SecondaryStatus.FAILED,
        ended_at=now,
        failure_reason=reason,
    )


def _log_fields(job: InferenceJobRecord) -> dict[str, str]:
    return {"action": "notify", "job": job.job_name, "topic": job.topic_arn}


MakeJob = Callable[[Connection, dict[str, Any], dict[str, str], float], TrainingJobRecord]
"""takes CreateTrainingJob's parameters, tags and the time; raises AwsError"""

_LIMIT_EXCEEDED = "ResourceLimitExceeded"


class Slots:
    """The slots of all services. Needs a write transaction, and `service` to be locked."""

    def __init__(self, make_job: MakeJob, clock: Clock, own: InferenceServiceSettings) -> None:
        self._make_job = make_job
        self._clock = clock
        self._own = own

    def admit(
        self, connection: Connection, service: Service, job: InferenceJobRecord
    ) -> tuple[InferenceJobRecord, int]:
        """Begins or enqueues `job`; returns it and the number of free slots.

        Raises:
            Full: no slot is free, and the queue is full.
            Failed: the training job cannot be made.
        """
        taken = self.fill(connection, service)
        if not _has_free_slot(taken, job.type, service.settings):
            return _enqueue(connection, service, job, taken), 0
        job, fault = self._begin(connection, service, job)
        if (
            fault is not None
            and fault.code == _LIMIT_EXCEEDED
            and service.settings.when_full == "queue"
        ):
            # The limit of training jobs is reached.
            return _enqueue(connection, service, job, taken), 0
        if fault is not None:
            raise Failed(fault.message) from fault
        inference_jobs.add(connection, job)
        taken[job.type] = taken.get(job.type, 0) + 1
        return job, _remaining(taken, job.type, service.settings)

    def check(self, connection: Connection, service: Service, kind: str) -> None:
        """Raises Full where the job could neither begin nor wait. A hint without the lock: `admit`
        decides."""
        taken = inference_jobs.active_by_type(connection, service.stage)
        if not _has_free_slot(taken, kind, service.settings):
            _check_queue(connection, service, kind, taken)

    def on_end(self, connection: Connection, training: TrainingJobRecord) -> None:
        """Called before a training job ends: frees its slot, publishes its notice and begins the
        next job."""
        job = inference_jobs.by_job_id(connection, training.job_id)
        if job is None:
            return
        service = load_valid_service(connection, job.stage, lock=True)
        # A sweep may have ended the job before the lock was ours.
        job = inference_jobs.by_job_id(connection, training.job_id)
        if job is None or job.state is InferenceState.ENDED:
            return
        finish(connection, service, ended_by(job, training), self._clock.now())
        if service is not None:
            self.fill(connection, service)

    def remove(
        self, connection: Connection, service: Service | None, job: InferenceJobRecord
    ) -> None:
        finish(connection, service, removed_ending(job, self._clock.now()), self._clock.now())

    def fill(self, connection: Connection, service: Service) -> dict[str, int]:
        """Begins queued jobs while slots are free; returns the taken slots by type."""
        taken = inference_jobs.active_by_type(connection, service.stage)
        if service.record.closing or undeclared_reason(service.record, self._own) is not None:
            return taken
        waiting = inference_jobs.first_queued(connection, service.stage)
        while job := _first_startable(waiting, taken, service.settings):
            if not self._begin_waiting(connection, service, job, taken):
                break
            if _first_startable(waiting, taken, service.settings):
                waiting = inference_jobs.first_queued(connection, service.stage)
        return taken

    def sweep(self, connection: Connection, stage: str) -> int:
        """Frees leaked slots; returns how many.

        A safety net for training jobs not ended by control; also begins jobs after a raised limit.
        """
        service = load_valid_service(connection, stage, lock=True)
        lost = inference_jobs.lost(connection, stage)
        for job in lost:
            self._end_lost(connection, service, job)
        if service is not None:
            self.fill(connection, service)
        return len(lost)

    def _begin_waiting(
        self,
        connection: Connection,
        service: Service,
        job: InferenceJobRecord,
        taken: dict[str, int],
    ) -> bool:
        """Returns whether the job left the queue; updates `taken`."""
        begun, fault = self._begin(connection, service, job)
        if fault is None:
            inference_jobs.save(connection, begun)
            taken[job.type] = taken.get(job.type, 0) + 1
        elif fault.code == _LIMIT_EXCEEDED:
            return False  # limit of training jobs reached
        else:
            now = self._clock.now()
            finish(connection, service, refused_ending(job, fault.message, now), now)
        return True

    def _begin(
        self, connection: Connection, service: Service, job: InferenceJobRecord
    ) -> tuple[InferenceJobRecord, AwsError | None]:
        now = self._clock.now()
        tags = make_tags(service.stage, job.type)
        made, fault = attempt(
            connection, lambda connection: self._make_job(connection, job.definition, tags, now)
        )
        if isinstance(fault, AwsError):
            return job, fault
        if fault is not None:
            raise fault
        assert made is not None
        active = InferenceState.ACTIVE
        return msgspec.structs.replace(job, state=active, job_id=made.job_id), None

    def _end_lost(
        self, connection: Connection, service: Service | None, job: InferenceJobRecord
    ) -> None:
        now = self._clock.now()
        training = training_jobs.get(connection, job.job_name)
        if training is None or training.job_id != job.job_id:
            finish(connection, service, lost_ending(job, now), now)
        else:
            finish(connection, service, ended_by(job, training), now)


def _first_startable(
    waiting: Sequence[InferenceJobRecord], taken: dict[str, int], settings: InferenceServiceSettings
) -> InferenceJobRecord | None:
    return next((job for job in waiting if _has_free_slot(taken, job.type, settings)), None)


def _has_free_slot(taken: dict[str, int], kind: str, settings: InferenceServiceSettings) -> bool:
    return _remaining(taken, kind, settings) > 0


def _remaining(taken: dict[str, int], kind: str, settings: InferenceServiceSettings) -> int:
    """Returns how many more jobs of this type may run."""
    free = settings.limit - taken.get(kind, 0)
    if settings.total_limit is not None:
        free = min(free, settings.total_limit - sum(taken.values()))
    return max(0, free)


def _enqueue(
    connection: Connection, service: Service, job: InferenceJobRecord, taken: dict[str, int]
) -> InferenceJobRecord:
    _check_queue(connection, service, job.type, taken)
    inference_jobs.add(connection, job)
    return job


def _check_queue(
    connection: Connection, service: Service, kind: str, taken: dict[str, int]
) -> None:
    settings = service.settings
    limit = _reached_limit(taken, kind, settings)
    if settings.when_full == "refuse":
        raise Full(kind, limit, f"The limit of {limit} jobs at once is reached.")
    waiting = inference_jobs.queued(connection, service.stage)
    if waiting >= settings.max_queued:
        raise Full(kind, limit, f"{waiting} jobs wait already; max_queued allows no more.")


def _reached_limit(taken: dict[str, int], kind: str, settings: InferenceServiceSettings) -> int:
    """Returns the type's own limit if reached, else the total."""
    if settings.total_limit is None or taken.get(kind, 0) >= settings.limit:
        return settings.limit
    return settings.total_limit
