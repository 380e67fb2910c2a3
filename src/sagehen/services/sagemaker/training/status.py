"""The steps of a training job through its statuses, with their times and SageMaker's messages.

InProgress: Pending ─► Starting ─► Downloading ─► Training ─► Uploading ─► Completed, Failed
               └───────────┴────────────┴────────────┴► Interrupted, Restarting ─► Starting
Stopping:   from anywhere, ─► Uploading ─► Stopped: Stopped, MaxRuntimeExceeded, MaxWaitTimeExceeded
"""

from typing import Any

import msgspec

from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.training.records import (
    SecondaryStatus,
    TrainingJobRecord,
    Transition,
)

__all__ = ["LONGEST_REASON", "JobUpdate"]

LONGEST_REASON = 1024
"""characters; from SageMaker's model"""
MAX_TRANSITIONS = 200
"""The first and the newest are kept: a spot job may be interrupted any number of times, and each
step writes all of them."""

_MESSAGES = {
    SecondaryStatus.PENDING: "Waiting for other training jobs to end",
    SecondaryStatus.STARTING: "Preparing the instances for training",
    SecondaryStatus.DOWNLOADING: "Downloading input data",
    SecondaryStatus.TRAINING: "Training image download completed. Training in progress.",
    SecondaryStatus.UPLOADING: "Uploading generated training model",
    SecondaryStatus.INTERRUPTED: "Training job interrupted: its capacity was taken back",
    SecondaryStatus.RESTARTING: "Restarting the training job",
    SecondaryStatus.STOPPING: "Stopping the training job",
    SecondaryStatus.COMPLETED: "Training job completed",
    SecondaryStatus.STOPPED: "Training job stopped",
    SecondaryStatus.MAX_RUNTIME_EXCEEDED: (
        "Training job runtime exceeded MaxRuntimeInSeconds provided"
    ),
    SecondaryStatus.MAX_WAIT_TIME_EXCEEDED: (
        "Training job total wait time exceeded MaxWaitTimeInSeconds provided"
    ),
}

_ENDS = {
    SecondaryStatus.COMPLETED: JobStatus.COMPLETED,
    SecondaryStatus.FAILED: JobStatus.FAILED,
    SecondaryStatus.STOPPED: JobStatus.STOPPED,
    SecondaryStatus.MAX_RUNTIME_EXCEEDED: JobStatus.STOPPED,
    SecondaryStatus.MAX_WAIT_TIME_EXCEEDED: JobStatus.STOPPED,
}


class JobUpdate:
    """Changes a job step by step, from `stored` to `record`."""

    def __init__(self, record: TrainingJobRecord) -> None:
        self.stored = record
        self.record = record
        self.moves: list[TrainingJobRecord] = []
        """The job after each new transition."""

    def note(self, **changes: Any) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)

    def move(
        self, to: SecondaryStatus, at: float, message: str | None = None, **changes: Any
    ) -> None:
        """Go to another status. A time before the last transition (the clock was set back) is
        raised to it."""
        *past, last = self.record.transitions
        if len(past) >= MAX_TRANSITIONS:
            del past[1]
        at = max(at, last.started_at)
        text = _MESSAGES.get(to, "") if message is None else message
        self.note(
            transitions=(
                *past,
                msgspec.structs.replace(last, ended_at=at),
                Transition(status=to, started_at=at, message=text),
            ),
            modified_at=max(at, self.record.modified_at),
            **changes,
        )
        self.moves.append(self.record)

    def stop(self, at: float, ends_as: SecondaryStatus, message: str | None = None) -> None:
        if self.record.status is JobStatus.IN_PROGRESS:
            self.move(
                SecondaryStatus.STOPPING,
                at,
                message,
                status=JobStatus.STOPPING,
                stop_requested_at=max(at, self.record.created_at),
                ends_as=ends_as,
            )

    def end(self, to: SecondaryStatus, at: float, reason: str | None = None) -> None:
        at = max(at, self.record.transitions[-1].started_at, self.record.started_at or at)
        if reason is not None:
            reason = reason[:LONGEST_REASON]
        self.move(
            to,
            at,
            reason,
            status=_ENDS[to],
            stage=JobStage.ENDED,
            ended_at=at,
            failure_reason=reason,
            gives_up_at=None,
        )
        self.close(at)

    def close(self, at: float) -> None:
        """End the last transition at its beginning, as SageMaker does with final ones."""
        *past, last = self.record.transitions
        self.note(transitions=(*past, msgspec.structs.replace(last, ended_at=at)))
        self.moves[-1] = self.record
