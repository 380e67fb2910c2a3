"""How much of training jobs there may be."""

from dataclasses import dataclass

from sagehen.settings import Settings

__all__ = ["JobLimits"]


@dataclass(frozen=True, kw_only=True)
class JobLimits:
    """Read once from the settings."""

    running: int
    """At once; more wait."""
    restarts: int
    """Of a job whose agent was lost, where it does not say itself."""
    series: int
    """Of CloudWatch's; metrics of jobs that would make more are dropped."""

    @classmethod
    def of(cls, settings: Settings) -> "JobLimits":
        return cls(
            running=settings.running_jobs,
            restarts=settings.max_job_restarts,
            series=settings.max_metric_series,
        )
