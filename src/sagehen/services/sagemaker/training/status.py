"""A training job on its way through its statuses: every step with its time and SageMaker's words.

InProgress: Pending ─► Starting ─► Downloading ─► Training ─► Uploading ─► Completed, Failed
               └───────────┴────────────┴────────────┴► Interrupted, Restarting ─► Starting
Stopping:   from anywhere, ─► Uploading ─► Stopped: Stopped, MaxRuntimeExceeded, MaxWaitTimeExceeded
"""

from typing import Any

import msgspec

from sagehen.services.sagemaker.training.records import (
    JobStage,
    JobStatus,
    SecondaryStatus,
    TrainingJobRecord,
    Transition,
)

__all__ = ["LONGEST_REASON", "Course"]

LONGEST_REASON = 1024
"""Of a FailureReason, as in SageMaker's model."""
MOST_TRANSITIONS = 200
"""Kept of the newest, besides the first: a spot job may be interrupted without end, and each step
writes all of them."""

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


class Course:
    """Starts at `record` as it is stored; `record` is then where the job has come."""

    def __init__(self, record: TrainingJobRecord) -> None:
        self.stored = record
        self.record = record
        self.moves: list[TrainingJobRecord] = []
        """The job after each new transition."""

    def note(self, **changes: Any) -> None:
        """Change what is no transition."""
        self.record = msgspec.structs.replace(self.record, **changes)

    def move(
        self, to: SecondaryStatus, at: float, message: str | None = None, **changes: Any
    ) -> None:
        """Go on to the status `to`.

        What seems to happen before the last transition happens with it: the clock was set back.
        """
        *past, last = self.record.transitions
        if len(past) >= MOST_TRANSITIONS:
            del past[1]
        at = max(at, last.started_at)
        said = _MESSAGES.get(to, "") if message is None else message
        self.note(
            transitions=(
                *past,
                msgspec.structs.replace(last, ended_at=at),
                Transition(status=to, started_at=at, message=said),
            ),
            modified_at=max(at, self.record.modified_at),
            **changes,
        )
        self.moves.append(self.record)

    def stop(self, at: float, ends_as: SecondaryStatus, message: str | None = None) -> None:
        """Begin to stop, if it has not."""
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
        """Come to a final status; `reason` is why it failed."""
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
        # The last status is where it stays.
        self.close(at)

    def close(self, at: float) -> None:
        """Have the last transition end as it begins, as SageMaker's final ones do."""
        *past, last = self.record.transitions
        self.note(transitions=(*past, msgspec.structs.replace(last, ended_at=at)))
        self.moves[-1] = self.record
