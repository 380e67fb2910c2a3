"""The definition of a metric."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "CLOUDWATCH_DIMENSIONS",
    "HOST",
    "JOB_HOST",
    "OWN",
    "TRANSFORM_HOST",
    "Metric",
    "MetricKind",
]


class MetricKind(StrEnum):
    """The kind of a metric's values."""

    COUNTER = "counter"
    """only grows; adds up over gateways and instances"""
    GAUGE = "gauge"
    """a current value"""
    TIMING = "timing"
    """sum and count of times, shown as `<name>Sum` and `<name>Count`; with a sketch also
    `<name>P50`, `P90`, `P99`"""


@dataclass(frozen=True)
class Metric:
    """A metric, with its names in SageMaker and Prometheus."""

    name: str
    exposed_as: str | None
    """None where another metric has the same values. Counters get the suffix `_total`, timings
    `_sum` and `_count`."""
    kind: MetricKind
    unit: str
    """CloudWatch's unit"""
    help: str
    dimensions: tuple[str, ...]
    namespace: str = "AWS/SageMaker"
    """CloudWatch's, or `Sagehen` for our own"""
    published_as: str | None = None
    """CloudWatch's name, if shared with a metric of other dimensions"""

    @property
    def cloudwatch_name(self) -> str:
        return self.published_as or self.name

    @property
    def cloudwatch_dimensions(self) -> tuple[str, ...]:
        """SageMaker does not separate a variant's instances."""
        return tuple(
            CLOUDWATCH_DIMENSIONS[dimension]
            for dimension in self.dimensions
            if dimension in CLOUDWATCH_DIMENSIONS
        )


CLOUDWATCH_DIMENSIONS = {
    "endpoint": "EndpointName",
    "variant": "VariantName",
    "container": "ContainerName",
    "host": "Host",
}
"""CloudWatch's names; instances have none"""

OWN = "Sagehen"
HOST = "/aws/sagemaker/Endpoints"
JOB_HOST = "/aws/sagemaker/TrainingJobs"
TRANSFORM_HOST = "/aws/sagemaker/TransformJobs"
