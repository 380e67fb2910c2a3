"""Training jobs."""

import os

from pydantic import Field

from sagehen.settings.section import Section

__all__ = ["TrainingSettings"]


class TrainingSettings(Section):
    """Training jobs."""

    max_running_jobs: int | None = Field(
        None,
        ge=1,
        description="Training jobs that run at once; more wait, the oldest first. Default: one "
        "per core, at least two.",
    )
    max_waiting_jobs: int = Field(
        10_000, ge=1, description="Training jobs that wait for room; more are refused."
    )
    max_job_instances: int = Field(
        20, ge=1, description="Instances of one training job; more are refused."
    )
    max_job_restarts: int = Field(
        3,
        ge=0,
        description="How often a training job is begun again after its agent was lost; as its "
        "RetryStrategy says where it has one, and as often as needed if it is a spot job.",
    )
    job_patience_seconds: float = Field(
        3600,
        gt=0,
        description="How long the object store may be away for a training job's inputs and "
        "outputs before its attempt is lost.",
    )
    job_stop_patience_seconds: float = Field(
        120,
        ge=0,
        description="How long the object store may be away for what a training job has left that "
        "was told to stop, or whose capacity was taken back; then that is lost.",
    )
    max_job_logs: int = Field(
        1000,
        gt=0,
        description="Training jobs whose logs are kept; of more, those that were written last.",
    )

    @property
    def running_jobs(self) -> int:
        """Training jobs that run at once."""
        return self.max_running_jobs or max(2, len(os.sched_getaffinity(0)))
