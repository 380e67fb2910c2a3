"""What a metric is."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["CLOUDWATCH_DIMENSIONS", "HOST", "JOB_HOST", "OWN", "Metric", "MetricKind"]


class MetricKind(StrEnum):
    """What can be done with a metric's values."""

    COUNTER = "counter"
    """Only grows; adds up over gateways and instances."""
    GAUGE = "gauge"
    """What is so now."""
    TIMING = "timing"
    """A growing sum of times and their number: told as `<name>Sum`, `<name>Count`; where there is a
    sketch of it, its percentiles as `<name>P50`, `P90`, `P99`."""


@dataclass(frozen=True)
class Metric:
    """One metric: SageMaker's name where it has one, and what it is called for Prometheus."""

    name: str
    exposed_as: str | None
    """None where another metric tells Prometheus the same. A counter's gets `_total` at its end, a
    timing's `_sum` and `_count`; its percentiles have the label `quantile`."""
    kind: MetricKind
    unit: str
    """CloudWatch's word for it."""
    help: str
    dimensions: tuple[str, ...]
    namespace: str = "AWS/SageMaker"
    """CloudWatch's, of a metric that SageMaker has; `Sagehen` for those that are our own."""
    told_as: str | None = None
    """CloudWatch's name, where that is another's too and only the dimensions tell them apart."""

    @property
    def cloudwatch_name(self) -> str:
        return self.told_as or self.name

    @property
    def cloudwatch_dimensions(self) -> tuple[str, ...]:
        """As CloudWatch has them: SageMaker tells of all instances of a variant together."""
        return tuple(
            CLOUDWATCH_DIMENSIONS[one] for one in self.dimensions if one in CLOUDWATCH_DIMENSIONS
        )


CLOUDWATCH_DIMENSIONS = {
    "endpoint": "EndpointName",
    "variant": "VariantName",
    "container": "ContainerName",
    "host": "Host",
}
"""CloudWatch's names of dimensions. Of an instance it has none."""

OWN = "Sagehen"
HOST = "/aws/sagemaker/Endpoints"
JOB_HOST = "/aws/sagemaker/TrainingJobs"
