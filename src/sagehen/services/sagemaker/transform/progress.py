"""A job's progress: what its runner's messages add to it, and how it is shown."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from sagehen.services.sagemaker.transform.job_records import TransformJobRecord, TransformProgress
from sagehen.services.sagemaker.transform.runner_messages import (
    Done,
    FailedObject,
    Progress,
    RunnerEnded,
    RunnerLog,
    RunnerSettings,
)

__all__ = ["RunnerMessage", "absorb", "describe_progress", "finished_keys"]

RunnerMessage = RunnerSettings | Done | FailedObject | Progress | RunnerLog | RunnerEnded


def absorb(
    progress: TransformProgress, messages: Sequence[RunnerMessage], now: float
) -> TransformProgress:
    """Returns the same object if `messages` add nothing to it; `finished_keys` has the rest."""
    after = progress
    for message in messages:
        after = _absorb_one(after, message)
    return progress if after == progress else msgspec.structs.replace(after, updated_at=now)


def finished_keys(messages: Iterable[RunnerMessage]) -> dict[str, bool]:
    """Returns the keys of objects that are finished, and which of them have failed."""
    keys: dict[str, bool] = {}
    for message in messages:
        if isinstance(message, Done):
            keys |= dict.fromkeys(message.keys, False)
        elif isinstance(message, FailedObject):
            keys[message.key] = True
    return keys


def _absorb_one(progress: TransformProgress, message: RunnerMessage) -> TransformProgress:
    match message:
        case Done():
            return _absorb_done(progress, message)
        case FailedObject():
            return _absorb_failed(progress, message)
        case Progress():
            return msgspec.structs.replace(
                progress,
                objects=max(message.objects, progress.objects),
                objects_known=message.objects_known,
                is_listed=message.is_listed,
                records=message.records,
                input_bytes=message.input_bytes,
                input_bytes_known=message.input_bytes_known,
            )
        case RunnerSettings():
            return msgspec.structs.replace(
                progress,
                max_concurrent=message.max_concurrent,
                max_payload_mb=message.max_payload_mb,
                batch_strategy=message.batch_strategy,
            )
        case _:
            return progress


def _absorb_done(progress: TransformProgress, message: Done) -> TransformProgress:
    # S3 sorts keys by their UTF-8 bytes, and Python sorts text by code points: the same order.
    through = max(filter(None, (progress.done_through, message.through)), default=None)
    return msgspec.structs.replace(
        progress,
        done_through=through,
        done_records=progress.done_records + message.records,
        failed_records=progress.failed_records + message.failed_records,
    )


def _absorb_failed(progress: TransformProgress, message: FailedObject) -> TransformProgress:
    return msgspec.structs.replace(
        progress,
        failed_objects=progress.failed_objects + 1,
        failed_error=progress.failed_error or message.error,
    )


def describe_progress(
    job: TransformJobRecord, progress: TransformProgress, now: float
) -> dict[str, Any]:
    """Returns counts, the rate since TransformStartTime, and the seconds left, by bytes."""
    seconds = 0.0
    if job.started_at is not None:
        seconds = max(0.0, (job.ended_at or now) - job.started_at)
    bytes_left = max(0, progress.input_bytes_known - progress.input_bytes)
    knows_rest = progress.is_listed and progress.input_bytes > 0 and not job.status.is_final
    return {
        "name": job.name,
        "status": job.status.value,
        "failure_reason": job.failure_reason,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "objects": progress.objects,
        "objects_known": progress.objects_known,
        "is_listed": progress.is_listed,
        "failed_objects": progress.failed_objects,
        "records": progress.records,
        "failed_records": progress.failed_records,
        "input_bytes": progress.input_bytes,
        "input_bytes_known": progress.input_bytes_known,
        "running_seconds": seconds,
        "records_per_second": progress.records / seconds if seconds else None,
        "bytes_per_second": progress.input_bytes / seconds if seconds else None,
        "seconds_left": (
            bytes_left * seconds / progress.input_bytes if knows_rest and seconds else None
        ),
        "max_concurrent_transforms": progress.max_concurrent,
        "max_payload_in_mb": progress.max_payload_mb,
        "batch_strategy": progress.batch_strategy,
    }
