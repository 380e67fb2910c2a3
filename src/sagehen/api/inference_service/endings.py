"""The end of a service's job: its slot is free, its end is told, and the next one begins, in the
transaction in which its training job ends. So each happens once, or the end itself did not."""

import logging

import msgspec
from sqlalchemy import Connection

from sagehen.api.inference_service.notices import notice_of
from sagehen.api.inference_service.service import Service
from sagehen.api.inference_service.topic import ensure_topic
from sagehen.domain.inference_service import InferenceJobRecord, InferenceState
from sagehen.domain.training import JobStatus, SecondaryStatus, TrainingJobRecord
from sagehen.store import inference_jobs, topics
from sagehen.store.grouped import attempt

__all__ = ["ended_by", "finish", "lost_ending", "refused_ending", "removed_ending"]

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
