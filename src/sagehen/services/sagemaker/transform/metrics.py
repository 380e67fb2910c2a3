"""Prometheus metrics of transform jobs."""

from collections import Counter
from collections.abc import Iterable, Mapping

from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.transform.job_records import TransformJobRecord, TransformProgress

__all__ = ["measure_jobs"]


def measure_jobs(
    counts: Mapping[tuple[JobStatus, JobStage], int],
    active: Iterable[tuple[TransformJobRecord, TransformProgress]],
    runner_restarts: int,
) -> dict[str, dict[tuple[str, ...], float]]:
    """Returns values by metric, then by dimensions.

    Args:
        counts: of jobs that have not ended.
        active: the running jobs with their progress.
    """
    by_status: Counter[tuple[str, ...]] = Counter()
    by_stage: Counter[JobStage] = Counter()
    for (status, stage), count in counts.items():
        by_status[status.value,] += count
        by_stage[stage] += count
    measured: dict[str, dict[tuple[str, ...], float]] = {
        "TransformJobs": dict(by_status),
        "PendingTransformJobs": {(): by_stage[JobStage.WAITING]},
        "TransformRunnerRestarts": {(): runner_restarts},
    }
    for job, progress in active:
        for name, value in _of_job(progress).items():
            measured.setdefault(name, {})[job.name,] = value
    return measured


def _of_job(progress: TransformProgress) -> dict[str, float]:
    return {
        "TransformObjects": progress.objects,
        "TransformObjectsKnown": progress.objects_known,
        "TransformObjectsFailed": progress.failed_objects,
        "TransformRecords": progress.records,
        "TransformRecordsFailed": progress.failed_records,
        "TransformInputBytes": progress.input_bytes,
        "TransformInputBytesKnown": progress.input_bytes_known,
    }
