"""Training jobs as they are kept: what was asked for, where they stand, how they came there."""

from enum import StrEnum
from typing import Any

import msgspec

from sagehen.domain.jobs import JobMetric
from sagehen.domain.records import DefinedRecord

__all__ = ["JobStatus", "SecondaryStatus", "TrainingJobRecord", "Transition"]


class JobStatus(StrEnum):
    """SageMaker's TrainingJobStatus; the last three are final."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def is_final(self) -> bool:
        return self not in (JobStatus.IN_PROGRESS, JobStatus.STOPPING)


class SecondaryStatus(StrEnum):
    """SageMaker's, the ones Sagehen reaches."""

    PENDING = "Pending"
    """It waits for room."""
    STARTING = "Starting"
    DOWNLOADING = "Downloading"
    TRAINING = "Training"
    UPLOADING = "Uploading"
    INTERRUPTED = "Interrupted"
    """Its capacity was taken back, or its node was lost; it is started again."""
    RESTARTING = "Restarting"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"
    MAX_RUNTIME_EXCEEDED = "MaxRuntimeExceeded"
    MAX_WAIT_TIME_EXCEEDED = "MaxWaitTimeExceeded"


class Transition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of SecondaryStatusTransitions."""

    status: SecondaryStatus
    started_at: float
    ended_at: float | None = None
    message: str = ""


class TrainingJobRecord(DefinedRecord, frozen=True, kw_only=True):
    """A training job; `definition` is what CreateTrainingJob was given, without Tags."""

    job_id: str
    """Ours, and never used again: a name may be, once its job was deleted."""
    modified_at: float
    status: JobStatus = JobStatus.IN_PROGRESS
    transitions: tuple[Transition, ...]
    """At least one; the last is where it stands."""
    attempt: int = 0
    """How many attempts have been asked of an agent; 0: none yet."""
    retries: int = 0
    """How many of them were after a fault of ours (RetryStrategy)."""
    started_at: float | None = None
    """TrainingStartTime: when its code first ran."""
    ended_at: float | None = None
    """TrainingEndTime."""
    run_seconds: float = 0
    """How long the code of its ended attempts has run, together."""
    failure_reason: str | None = None
    stop_requested_at: float | None = None
    has_artifacts: bool = False
    """Something was uploaded."""
    metrics: tuple[JobMetric, ...] = ()
    """FinalMetricDataList."""

    @property
    def secondary(self) -> SecondaryStatus:
        return self.transitions[-1].status

    @property
    def attempt_id(self) -> str:
        """Of the newest attempt, as the agent knows it."""
        return f"{self.job_id}-{self.attempt}"

    @property
    def spot(self) -> bool:
        return bool(self.definition.get("EnableManagedSpotTraining"))

    @property
    def output_folder(self) -> str:
        """The URI below which everything it writes is kept, without a slash at its end."""
        path: dict[str, Any] = self.definition["OutputDataConfig"]
        return f"{path['S3OutputPath'].rstrip('/')}/{self.name}/output"
