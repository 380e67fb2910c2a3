"""Training jobs as they are kept: what was asked for, where they stand, how they came there."""

from enum import StrEnum
from typing import Any

import msgspec

from sagehen.frame.job_specs import JobMetric
from sagehen.services.sagemaker.hosting.records import DefinedRecord

__all__ = ["JobStage", "JobStatus", "SecondaryStatus", "TrainingJobRecord", "Transition"]


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


class JobStage(StrEnum):
    """What the loop that runs jobs has to do with one."""

    WAITING = "waiting"
    """Nothing, until there is room for it or its time to wait is over."""
    ACTIVE = "active"
    """An attempt is at the agent, or on its way there, or the job is to be stopped."""
    ENDED = "ended"


class Transition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of SecondaryStatusTransitions."""

    status: SecondaryStatus
    started_at: float
    ended_at: float | None = None
    message: str = ""


class TrainingJobRecord(DefinedRecord, frozen=True, kw_only=True):
    """A training job.

    `definition` is what CreateTrainingJob was given, without Tags, with a StoppingCondition that
    has a MaxRuntimeInSeconds.
    """

    job_id: str
    """Ours, and never used again: a name may be, once its job was deleted."""
    modified_at: float
    status: JobStatus = JobStatus.IN_PROGRESS
    stage: JobStage = JobStage.WAITING
    transitions: tuple[Transition, ...]
    """At least one; the last is where it stands."""
    attempt: int = 0
    """How many attempts have been asked of an agent; 0: none yet."""
    retries: int = 0
    """How many of them were after a fault of ours: an agent that was lost, InternalServerError."""
    phases: int = 0
    """How many phases of the newest attempt are among the transitions."""
    started_at: float | None = None
    """TrainingStartTime: when its code first ran."""
    ended_at: float | None = None
    """TrainingEndTime."""
    run_seconds: float = 0
    """How long the code of its ended attempts has run, together."""
    failure_reason: str | None = None
    stop_requested_at: float | None = None
    ends_as: SecondaryStatus = SecondaryStatus.STOPPED
    """What it is to be when it has been stopped: MaxWaitTimeExceeded, for one that waited."""
    gives_up_at: float | None = None
    """When it is stopped for having waited: MaxWaitTimeInSeconds or, before its start,
    MaxPendingTimeInSeconds; None where it may wait for ever."""
    clock_shift: float = 0
    """By how many seconds the clock was set forward since its creation, and not back again."""
    metrics: tuple[JobMetric, ...] = ()
    """FinalMetricDataList."""
    artifacts: tuple[str, ...] = ()
    """What was uploaded, below `output_folder`: `model.tar.gz`, for example."""

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
    def total_seconds(self) -> float:
        """How long its code has run, and it has waited between attempts and been begun again."""
        if self.started_at is None:
            return 0.0
        waits = (
            (one.ended_at or one.started_at) - one.started_at
            for one in self.transitions
            if one.started_at > self.started_at and one.status in _BETWEEN_ATTEMPTS
        )
        return self.run_seconds + sum(waits)

    @property
    def max_runtime_seconds(self) -> float:
        """How long its code may run, over all attempts."""
        stopping: dict[str, int] = self.definition["StoppingCondition"]
        return stopping["MaxRuntimeInSeconds"]

    @property
    def max_retries(self) -> int | None:
        """RetryStrategy's MaximumRetryAttempts."""
        strategy: dict[str, int] | None = self.definition.get("RetryStrategy")
        return strategy["MaximumRetryAttempts"] if strategy else None

    @property
    def wait_ends_at(self) -> float | None:
        """When a spot job has waited and run for MaxWaitTimeInSeconds."""
        longest = self.definition["StoppingCondition"].get("MaxWaitTimeInSeconds")
        if longest is None or not self.spot:
            return None
        return self.created_at + self.clock_shift + float(longest)

    @property
    def output_folder(self) -> str:
        """The URI below which everything it writes is kept, without a slash at its end."""
        path: dict[str, Any] = self.definition["OutputDataConfig"]
        return f"{path['S3OutputPath'].rstrip('/')}/{self.name}/output"


_BETWEEN_ATTEMPTS = (
    SecondaryStatus.INTERRUPTED,
    SecondaryStatus.RESTARTING,
    SecondaryStatus.STARTING,
    SecondaryStatus.DOWNLOADING,
)
