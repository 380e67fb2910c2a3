"""How much of metrics is kept."""

from pydantic import Field

from sagehen.settings.section import Section

__all__ = ["MetricSettings"]


class MetricSettings(Section):
    """Metrics."""

    metric_retention_seconds: int = Field(
        15 * 86_400, ge=3600, description="How long samples of metrics are kept, by the minute."
    )
    max_metric_series: int = Field(
        10_000,
        gt=0,
        description="Series of metrics, each a metric with its dimensions and unit; what would "
        "make more is refused, or dropped where nobody is there to tell.",
    )
    max_metric_samples: int = Field(
        5_000_000,
        gt=0,
        description="Samples of all metrics together; beyond it they are kept for a shorter time.",
    )
