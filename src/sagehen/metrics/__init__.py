"""Every metric by name, unit and dimensions, of SageMaker and our own."""

from sagehen.metrics.asynchronous import ASYNCHRONOUS
from sagehen.metrics.hosts import HOSTS, JOB_HOSTS
from sagehen.metrics.inference_service import INFERENCE_SERVICE
from sagehen.metrics.invocations import INVOCATIONS
from sagehen.metrics.metric import CLOUDWATCH_DIMENSIONS, HOST, JOB_HOST, OWN, Kind, Metric
from sagehen.metrics.objects import OBJECTS
from sagehen.metrics.training import TRAINING

__all__ = ["CLOUDWATCH_DIMENSIONS", "HOST", "JOB_HOST", "METRICS", "OWN", "Kind", "Metric"]

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *INVOCATIONS,
        *ASYNCHRONOUS,
        *HOSTS,
        *JOB_HOSTS,
        *INFERENCE_SERVICE,
        *OBJECTS,
        *TRAINING,
    )
}
"""Every metric, by SageMaker's name of it."""
