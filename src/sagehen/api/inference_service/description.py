"""What GET tells of a job."""

from typing import Any

from sqlalchemy import Connection

from sagehen.api.inference_service.notices import shown_duration, shown_time
from sagehen.domain.inference_service import InferenceJobRecord, InferenceState
from sagehen.domain.training import TrainingJobRecord
from sagehen.store import inference_jobs, training_jobs

__all__ = ["describe"]


def describe(connection: Connection, job: InferenceJobRecord) -> dict[str, Any]:
    """The job as it stands: kept by its own row once it has ended, by its training job before."""
    training = None
    if job.state is InferenceState.ACTIVE:
        training = training_jobs.get(connection, job.job_name)
    told = {
        "jobName": job.job_name,
        "type": job.type,
        **_standing(job, training),
        "creationTime": shown_time(job.created_at),
        "startTime": shown_time(training.started_at if training else job.started_at),
        "endTime": shown_time(job.ended_at),
        "durationSeconds": shown_duration(job),
        "resultUri": job.result_uri,
        "failureReason": job.failure_reason,
    }
    if job.state is InferenceState.QUEUED:
        told["queuePosition"] = inference_jobs.position(connection, job)
    return told


def _standing(job: InferenceJobRecord, training: TrainingJobRecord | None) -> dict[str, Any]:
    if job.state is InferenceState.QUEUED:
        return {"status": "Queued", "secondaryStatus": "Queued"}
    if training is not None and training.job_id == job.job_id:
        return {"status": training.status, "secondaryStatus": training.secondary}
    return {"status": job.status, "secondaryStatus": job.secondary}
