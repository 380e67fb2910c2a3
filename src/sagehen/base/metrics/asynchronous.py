"""The metrics of asynchronous endpoints."""

from sagehen.base.metrics.metric import Metric, MetricKind

__all__ = ["ASYNCHRONOUS"]

_VARIANT = ("endpoint", "variant")


def _count(name: str, exposed_as: str | None, help: str) -> Metric:
    return Metric(name, exposed_as, MetricKind.COUNTER, "Count", help, _VARIANT)


def _backlog(name: str, exposed_as: str, unit: str, help: str) -> Metric:
    return Metric(name, exposed_as, MetricKind.GAUGE, unit, help, ("endpoint",))


def _timing(name: str, exposed_as: str, unit: str, help: str) -> Metric:
    return Metric(name, exposed_as, MetricKind.TIMING, unit, help, _VARIANT)


ASYNCHRONOUS = (
    _backlog(
        "ApproximateBacklogSize",
        "sagehen_approximate_backlog_size",
        "Count",
        "Requests of an asynchronous endpoint that wait or are worked on.",
    ),
    _backlog(
        "ApproximateBacklogSizePerInstance",
        "sagehen_approximate_backlog_size_per_instance",
        "Count",
        "The backlog divided by the instances in service; the backlog itself without instances.",
    ),
    _backlog(
        "ApproximateAgeOfOldestRequest",
        "sagehen_approximate_age_of_oldest_request_seconds",
        "Seconds",
        "The age of the oldest request that has not ended.",
    ),
    _backlog(
        "HasBacklogWithoutCapacity",
        "sagehen_has_backlog_without_capacity",
        "Count",
        "1 while requests wait and no instance is in service.",
    ),
    _count(
        "InvocationsProcessed",
        "sagehen_async_invocations_processed",
        "Asynchronous requests that a container answered, with any status.",
    ),
    _count(
        "InvocationsProcesssed",
        None,
        "The same, as SageMaker's documentation spells it.",
    ),
    _count(
        "InvocationFailures",
        "sagehen_async_invocation_failures",
        "Asynchronous requests that ended in a failure.",
    ),
    _count(
        "RequestDownloadFailures",
        "sagehen_async_request_download_failures",
        "Inputs of asynchronous requests that could not be read.",
    ),
    _count(
        "ResponseUploadFailures",
        "sagehen_async_response_upload_failures",
        "Outputs of asynchronous requests that could not be written.",
    ),
    _count(
        "NotificationFailures",
        "sagehen_async_notification_failures",
        "Notices of asynchronous requests that could not be published or delivered.",
    ),
    _count(
        "ExpiredRequests",
        "sagehen_async_expired_requests",
        "Asynchronous requests that waited for longer than RequestTTLSeconds.",
    ),
    _timing(
        "RequestDownloadLatency",
        "sagehen_async_request_download_latency_microseconds",
        "Microseconds",
        "Time to read inputs from the object store.",
    ),
    _timing(
        "ResponseUploadLatency",
        "sagehen_async_response_upload_latency_microseconds",
        "Microseconds",
        "Time to write outputs to the object store.",
    ),
    _timing(
        "TimeInBacklog",
        "sagehen_async_time_in_backlog_milliseconds",
        "Milliseconds",
        "Time from the receipt of asynchronous requests until a worker took them.",
    ),
    _timing(
        "TotalProcessingTime",
        "sagehen_async_total_processing_time_milliseconds",
        "Milliseconds",
        "Time from the receipt of asynchronous requests until output and notice were written.",
    ),
)
