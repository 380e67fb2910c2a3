"""The steps of a transform job through its statuses, and the reasons of its failures.

InProgress: waiting ─► active ─► Completed, Failed
Stopping:   from both ─► Stopped
"""

import msgspec

from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.transform.job_records import TransformJobRecord

__all__ = [
    "INTERNAL_ERROR",
    "LONGEST_REASON",
    "admit",
    "complete",
    "fail",
    "failure_reason",
    "request_stop",
    "start",
    "stop",
]

LONGEST_REASON = 1024
"""characters; from SageMaker's model"""
INTERNAL_ERROR = "InternalServerError"

_REASONS = {
    "AlgorithmError": "See job logs for more information",
    "ClientError": "See job logs for more information",
    # SageMaker's own two spaces.
    INTERNAL_ERROR: "We encountered an internal error.  Please try again.",
}


def failure_reason(error: str, message: str = "") -> str:
    """Returns SageMaker's sentence for a kind of error, or `message` in its place."""
    return f"{error}: {message or _REASONS[error]}"


def admit(job: TransformJobRecord) -> TransformJobRecord:
    """Lets a waiting job have instances."""
    return msgspec.structs.replace(job, stage=JobStage.ACTIVE)


def start(job: TransformJobRecord, now: float) -> TransformJobRecord:
    """Notes that the first instance is in service."""
    at = max(now, job.created_at)
    return msgspec.structs.replace(job, started_at=at, modified_at=max(at, job.modified_at))


def request_stop(job: TransformJobRecord, now: float) -> TransformJobRecord:
    """Also a waiting job is ended by the reconciler, which finds nothing that runs."""
    at = max(now, job.modified_at)
    return msgspec.structs.replace(
        job,
        status=JobStatus.STOPPING,
        stage=JobStage.ACTIVE,
        stop_requested_at=at,
        modified_at=at,
    )


def complete(job: TransformJobRecord, now: float) -> TransformJobRecord:
    return _end(job, JobStatus.COMPLETED, now)


def stop(job: TransformJobRecord, now: float) -> TransformJobRecord:
    return _end(job, JobStatus.STOPPED, now)


def fail(job: TransformJobRecord, reason: str, now: float) -> TransformJobRecord:
    return _end(job, JobStatus.FAILED, now, reason[:LONGEST_REASON])


def _end(
    job: TransformJobRecord, status: JobStatus, now: float, reason: str | None = None
) -> TransformJobRecord:
    at = max(now, job.modified_at)  # the clock may have been set back
    return msgspec.structs.replace(
        job,
        status=status,
        stage=JobStage.ENDED,
        ended_at=at,
        modified_at=at,
        failure_reason=reason,
    )
