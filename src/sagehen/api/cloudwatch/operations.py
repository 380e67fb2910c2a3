"""The operations of the cloudwatch service, by name. One that is not here is refused by name."""

from sagehen.api.call import Operation
from sagehen.api.cloudwatch.data import get_metric_data
from sagehen.api.cloudwatch.listing import list_metrics
from sagehen.api.cloudwatch.putting import put_metric_data
from sagehen.api.cloudwatch.statistics import get_metric_statistics

__all__ = ["OPERATIONS"]

OPERATIONS: dict[str, Operation] = {
    "GetMetricData": get_metric_data,
    "GetMetricStatistics": get_metric_statistics,
    "ListMetrics": list_metrics,
    "PutMetricData": put_metric_data,
}
