"""All metrics, SageMaker's and our own."""

from sagehen.base.metrics.asynchronous import ASYNCHRONOUS
from sagehen.base.metrics.invocations import INVOCATIONS
from sagehen.base.metrics.metric import (
    CLOUDWATCH_DIMENSIONS,
    HOST,
    JOB_HOST,
    OWN,
    Metric,
    MetricKind,
)
from sagehen.base.metrics.server import CLUSTER, SERVER
from sagehen.base.metrics.serverless import SERVERLESS
from sagehen.base.metrics.usage import (
    HOSTS,
    INFERENCE_SERVICE,
    JOB_HOSTS,
    OBJECTS,
    TRAINING,
    TRANSFORM,
)

__all__ = ["CLOUDWATCH_DIMENSIONS", "HOST", "JOB_HOST", "METRICS", "OWN", "Metric", "MetricKind"]

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *INVOCATIONS,
        *SERVERLESS,
        *ASYNCHRONOUS,
        *HOSTS,
        *JOB_HOSTS,
        *INFERENCE_SERVICE,
        *OBJECTS,
        *TRAINING,
        *TRANSFORM,
        *SERVER,
        *CLUSTER,
    )
}
"""by SageMaker's name"""
