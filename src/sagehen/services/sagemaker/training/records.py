"""Training jobs as they are stored."""

from enum import StrEnum
from typing import Any

import msgspec

from sagehen.frame.job_specs import JobMetric
from sagehen.services.sagemaker.hosting.records import DefinedRecord
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus

__all__ = ["SecondaryStatus", "TrainingJobRecord", "Transition"]


class SecondaryStatus(StrEnum):
    """SageMaker's SecondaryStatus, as far as Sagehen uses it."""

    PENDING = "Pending"
    """Waits for other jobs to end."""
    STARTING = "Starting"
    DOWNLOADING = "Downloading"
    TRAINING = "Training"
    UPLOADING = "Uploading"
    INTERRUPTED = "Interrupted"
    """Capacity or node lost; it will be restarted."""
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
    """A training job; its `definition` always has a MaxRuntimeInSeconds."""

    job_id: str
    """Unique; a name may be used again after its job was deleted."""
    modified_at: float
    status: JobStatus = JobStatus.IN_PROGRESS
    stage: JobStage = JobStage.WAITING
    transitions: tuple[Transition, ...]
    """At least one; the last is current."""
    attempt: int = 0
    retries: int = 0
    """Attempts after a lost agent or an InternalServerError."""
    phases: int = 0
    """Phases of the newest attempt that are in `transitions`."""
    started_at: float | None = None
    """TrainingStartTime: when its code first ran."""
    ended_at: float | None = None
    run_seconds: float = 0
    """seconds that the code of all ended attempts ran"""
    failure_reason: str | None = None
    stop_requested_at: float | None = None
    ends_as: SecondaryStatus = SecondaryStatus.STOPPED
    gives_up_at: float | None = None
    """When waiting ends: MaxWaitTimeInSeconds or, before the start, MaxPendingTimeInSeconds; None
    for no limit."""
    clock_shift: float = 0
    """By how many seconds the clock was set forward since its creation."""
    metrics: tuple[JobMetric, ...] = ()
    artifacts: tuple[str, ...] = ()
    """Uploaded files below `output_folder`, as `model.tar.gz`."""

    @property
    def secondary(self) -> SecondaryStatus:
        return self.transitions[-1].status

    @property
    def attempt_id(self) -> str:
        return f"{self.job_id}-{self.attempt}"

    @property
    def spot(self) -> bool:
        return bool(self.definition.get("EnableManagedSpotTraining"))

    @property
    def total_seconds(self) -> float:
        """The run time of the code plus the time between attempts."""
        if self.started_at is None:
            return 0.0
        waits = (
            (transition.ended_at or transition.started_at) - transition.started_at
            for transition in self.transitions
            if transition.started_at > self.started_at and transition.status in _BETWEEN_ATTEMPTS
        )
        return self.run_seconds + sum(waits)

    @property
    def max_runtime_seconds(self) -> float:
        """The limit over all attempts."""
        stopping: dict[str, int] = self.definition["StoppingCondition"]
        return stopping["MaxRuntimeInSeconds"]

    @property
    def max_retries(self) -> int | None:
        strategy: dict[str, int] | None = self.definition.get("RetryStrategy")
        return strategy["MaximumRetryAttempts"] if strategy else None

    @property
    def wait_ends_at(self) -> float | None:
        """When MaxWaitTimeInSeconds of a spot job ends."""
        longest = self.definition["StoppingCondition"].get("MaxWaitTimeInSeconds")
        if longest is None or not self.spot:
            return None
        return self.created_at + self.clock_shift + float(longest)

    @property
    def output_folder(self) -> str:
        """The outputs' URI, without a slash at its end."""
        path: dict[str, Any] = self.definition["OutputDataConfig"]
        return f"{path['S3OutputPath'].rstrip('/')}/{self.name}/output"


_BETWEEN_ATTEMPTS = (
    SecondaryStatus.INTERRUPTED,
    SecondaryStatus.RESTARTING,
    SecondaryStatus.STARTING,
    SecondaryStatus.DOWNLOADING,
)
