"""Who gets a slot: the limits are counted by rows, under the lock of the service's row, in the
transaction that makes the training job. So two requests never take the same slot, and none is taken
that no job holds.

The end of a service's job: its slot is free, its end is told, and the next one begins, in the
transaction in which its training job ends. So each happens once, or the end itself did not.
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
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.records import (
    JobStatus,
    SecondaryStatus,
    TrainingJobRecord,
)
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
"""What a job may leave below its folder, the likeliest result first."""


def ended_by(job: InferenceJobRecord, training: TrainingJobRecord) -> InferenceJobRecord:
    """`job` as its training job has ended."""
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
    """`job` as it ends where it is taken out of the queue."""
    return msgspec.structs.replace(
        job,
        state=InferenceState.ENDED,
        status=JobStatus.STOPPED,
        secondary=SecondaryStatus.STOPPED,
        ended_at=now,
        failure_reason="It was removed from the queue before it began.",
    )


def refused_ending(job: InferenceJobRecord, reason: str, now: float) -> InferenceJobRecord:
    """`job` as it ends where its training job cannot be made."""
    return _failed(job, f"The training job could not be created: {reason}"[:1024], now)


def lost_ending(job: InferenceJobRecord, now: float) -> InferenceJobRecord:
    """`job` as it ends where its training job is gone and nobody has told of its end."""
    return _failed(job, "The training job is gone.", now)


def finish(
    connection: Connection, service: Service | None, job: InferenceJobRecord, now: float
) -> None:
    """Keep a job that has ended, and tell of it, where the service tells of such ends.

    `service` is None where it is gone: what it had begun is told even then.
    """
    if service is None or str(job.status) in service.settings.notify:
        _, fault = attempt(connection, lambda connection: _publish(connection, service, job, now))
        if fault is not None:
            # The end itself has to stand, whatever is wrong with the topic.
            log.error("A notice is lost.", exc_info=fault, extra=_told(job))
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
        log.warning("A notice had no topic to go to.", extra=_told(job))
        return
    log.warning("The topic was gone, and is made again.", extra=_told(job))
    ensure_topic(connection, service, job.topic_arn, now)
    topics.publish(connection, notice)


def _result_uri(training: TrainingJobRecord) -> str | None:
    """What a reader looks for first: what it wrote to /opt/ml/output/data, else its model."""
    found = next((one for one in _RESULTS if one in training.artifacts), None)
    return None if found is None else f"{training.output_folder}/{found}"


def _failed(job: InferenceJobRecord, reason: str, now: float) -> InferenceJobRecord:
    return msgspec.structs.replace(
        job,
        state=InferenceState.ENDED,
        status=JobStatus.FAILED,
        secondary=SecondaryStatus.FAILED,
        ended_at=now,
        failure_reason=reason,
    )


def _told(job: InferenceJobRecord) -> dict[str, str]:
    return {"action": "notify", "job": job.job_name, "topic": job.topic_arn}


MakeJob = Callable[[Connection, dict[str, Any], dict[str, str], float], TrainingJobRecord]
"""Given CreateTrainingJob's parameters, tags and the time, make a training job; raises AwsError."""

_NO_ROOM = "ResourceLimitExceeded"


class Slots:
    """Gives out the slots of all services, and takes them back. Each method is called in a
    transaction of the state's that writes."""

    def __init__(self, make_job: MakeJob, clock: Clock, own: InferenceServiceSettings) -> None:
        """`own` are the settings of this server."""
        self._make_job = make_job
        self._clock = clock
        self._own = own

    def admit(
        self, connection: Connection, service: Service, job: InferenceJobRecord
    ) -> tuple[InferenceJobRecord, int]:
        """Begin `job`, or have it wait; the job as it is then, and how many slots are left.

        Args:
            service: locked.

        Raises:
            Full: there is no slot, and no place in the queue.
            Failed: the training job cannot be made.
        """
        taken = self.fill(connection, service)
        if not _has_room(taken, job.type, service.settings):
            return _enqueue(connection, service, job, taken), 0
        job, fault = self._begin(connection, service, job)
        if fault is not None and fault.code == _NO_ROOM and service.settings.when_full == "queue":
            # Of training jobs there are too many: it begins when there are fewer.
            return _enqueue(connection, service, job, taken), 0
        if fault is not None:
            raise Failed(fault.message) from fault
        inference_jobs.add(connection, job)
        taken[job.type] = taken.get(job.type, 0) + 1
        return job, _remaining(taken, job.type, service.settings)

    def check(self, connection: Connection, service: Service, kind: str) -> None:
        """Raise Full where a job of this type would neither begin nor wait now. It may look
        different a moment later: this only spares what `admit` would refuse most likely."""
        taken = inference_jobs.active_by_type(connection, service.stage)
        if not _has_room(taken, kind, service.settings):
            _check_queue(connection, service, kind, taken)

    def on_end(self, connection: Connection, training: TrainingJobRecord) -> None:
        """A training job is about to end: free its slot, tell of it, and begin who waits for it.
        Those that no service made are left alone."""
        job = inference_jobs.by_job_id(connection, training.job_id)
        if job is None:
            return
        service = load_valid_service(connection, job.stage, lock=True)
        # It may have been ended by a sweep before we had the lock.
        job = inference_jobs.by_job_id(connection, training.job_id)
        if job is None or job.state is InferenceState.ENDED:
            return
        finish(connection, service, ended_by(job, training), self._clock.now())
        if service is not None:
            self.fill(connection, service)

    def remove(
        self, connection: Connection, service: Service | None, job: InferenceJobRecord
    ) -> None:
        """Take a job out of the queue, and tell of it. `service` is locked."""
        finish(connection, service, removed_ending(job, self._clock.now()), self._clock.now())

    def fill(self, connection: Connection, service: Service) -> dict[str, int]:
        """Begin jobs that wait, for as long as there are slots; the slots that are taken then, by
        exact type. `service` is locked."""
        taken = inference_jobs.active_by_type(connection, service.stage)
        if service.record.closing or undeclared_reason(service.record, self._own) is not None:
            return taken
        waiting = inference_jobs.first_queued(connection, service.stage)
        while job := _first_with_room(waiting, taken, service.settings):
            if not self._begin_waiting(connection, service, job, taken):
                break
            if _first_with_room(waiting, taken, service.settings):
                waiting = inference_jobs.first_queued(connection, service.stage)
        return taken

    def sweep(self, connection: Connection, stage: str) -> int:
        """Free the slots that no training job holds any more; how many there were.

        There are none, unless a training job ended by other hands than control's: this is for
        safety. It also begins who waits, where a limit was raised.
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
        """Whether the job waits no longer; its slot is added to those that are `taken`."""
        begun, fault = self._begin(connection, service, job)
        if fault is None:
            inference_jobs.save(connection, begun)
            taken[job.type] = taken.get(job.type, 0) + 1
        elif fault.code == _NO_ROOM:
            return False  # Of training jobs there are too many. It waits on.
        else:
            now = self._clock.now()
            finish(connection, service, refused_ending(job, fault.message, now), now)
        return True

    def _begin(
        self, connection: Connection, service: Service, job: InferenceJobRecord
    ) -> tuple[InferenceJobRecord, AwsError | None]:
        """Make the training job; where that cannot be, why."""
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


def _first_with_room(
    waiting: Sequence[InferenceJobRecord], taken: dict[str, int], settings: InferenceServiceSettings
) -> InferenceJobRecord | None:
    return next((one for one in waiting if _has_room(taken, one.type, settings)), None)


def _has_room(taken: dict[str, int], kind: str, settings: InferenceServiceSettings) -> bool:
    return _remaining(taken, kind, settings) > 0


def _remaining(taken: dict[str, int], kind: str, settings: InferenceServiceSettings) -> int:
    """How many more jobs of this type may run, never negative.

    Args:
        taken: slots that jobs hold, by exact type.
    """
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
    """Raise Full where no job of this type may wait."""
    settings = service.settings
    limit = _reached_limit(taken, kind, settings)
    if settings.when_full == "refuse":
        raise Full(kind, limit, f"The limit of {limit} jobs at once is reached.")
    waiting = inference_jobs.queued(connection, service.stage)
    if waiting >= settings.max_queued:
        raise Full(kind, limit, f"{waiting} jobs wait already, which is as many as may.")


def _reached_limit(taken: dict[str, int], kind: str, settings: InferenceServiceSettings) -> int:
    """The limit that keeps this type out: its own where that is reached, else that of all."""
    if settings.total_limit is None or taken.get(kind, 0) >= settings.limit:
        return settings.limit
    return settings.total_limit
