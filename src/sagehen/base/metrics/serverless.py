"""The metrics of serverless variants."""

from sagehen.base.metrics.metric import Metric, MetricKind

__all__ = ["SERVERLESS"]

_VARIANT = ("endpoint", "variant")


def _metric(name: str, exposed_as: str, kind: MetricKind, unit: str, help: str) -> Metric:
    return Metric(name, exposed_as, kind, unit, help, _VARIANT)


SERVERLESS = (
    _metric(
        "ModelSetupTime",
        "sagehen_model_setup_time_microseconds",
        MetricKind.TIMING,
        "Microseconds",
        "Time that the starts of a serverless variant's instances took, downloads included.",
    ),
    _metric(
        "ServerlessConcurrentExecutionsUtilization",
        "sagehen_serverless_concurrent_executions_utilization",
        MetricKind.GAUGE,
        "None",
        "Requests to a serverless variant at once, divided by its MaxConcurrency.",
    ),
    _metric(
        "ServerlessProvisionedConcurrencyExecutions",
        "sagehen_serverless_provisioned_concurrency_executions",
        MetricKind.GAUGE,
        "Count",
        "Requests at once within the provisioned concurrency.",
    ),
    _metric(
        "ServerlessProvisionedConcurrencyUtilization",
        "sagehen_serverless_provisioned_concurrency_utilization",
        MetricKind.GAUGE,
        "None",
        "Requests at once within the provisioned concurrency, divided by it.",
    ),
    _metric(
        "ServerlessProvisionedConcurrencyInvocations",
        "sagehen_serverless_provisioned_concurrency_invocations",
        MetricKind.COUNTER,
        "Count",
        "Invocations within the provisioned concurrency.",
    ),
    _metric(
        "ServerlessProvisionedConcurrencySpilloverInvocations",
        "sagehen_serverless_provisioned_concurrency_spillover_invocations",
        MetricKind.COUNTER,
        "Count",
        "Invocations above the provisioned concurrency.",
    ),
)
