"""The two alarms of a target tracking policy: one above its target, one well below."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sagehen.services.autoscaling.dimensions import (
    COPIES,
    DIMENSIONS,
    INSTANCES,
    PROVISIONED_CONCURRENCY,
)
from sagehen.services.autoscaling.records import PolicyRecord, TargetKey

__all__ = [
    "LOW_SHARE",
    "PREDEFINED_METRICS",
    "AlarmPeriods",
    "PredefinedMetric",
    "alarm_definitions",
    "metric_of",
    "periods_of",
]

LOW_SHARE = 0.9
"""of the target: what is less can be scaled in"""
HIGH_PERIODS = 3
PERIOD_SECONDS = 60
HIGH_RESOLUTION_SECONDS = 10


@dataclass(frozen=True, kw_only=True)
class PredefinedMetric:
    """The CloudWatch metric of a PredefinedMetricType."""

    dimension: str
    name: str
    statistic: str
    period_seconds: int = PERIOD_SECONDS
    namespace: str = "AWS/SageMaker"


PREDEFINED_METRICS: Mapping[str, PredefinedMetric] = {
    "SageMakerVariantInvocationsPerInstance": PredefinedMetric(
        dimension=INSTANCES, name="InvocationsPerInstance", statistic="Sum"
    ),
    "SageMakerVariantConcurrentRequestsPerModelHighResolution": PredefinedMetric(
        dimension=INSTANCES,
        name="ConcurrentRequestsPerModel",
        statistic="Maximum",
        period_seconds=HIGH_RESOLUTION_SECONDS,
    ),
    "SageMakerVariantProvisionedConcurrencyUtilization": PredefinedMetric(
        dimension=PROVISIONED_CONCURRENCY,
        name="ServerlessProvisionedConcurrencyUtilization",
        statistic="Average",
    ),
    "SageMakerInferenceComponentInvocationsPerCopy": PredefinedMetric(
        dimension=COPIES, name="InvocationsPerCopy", statistic="Sum"
    ),
    "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution": PredefinedMetric(
        dimension=COPIES,
        name="ConcurrentRequestsPerCopy",
        statistic="Maximum",
        period_seconds=HIGH_RESOLUTION_SECONDS,
    ),
}
"""SageMaker's, by PredefinedMetricType"""


class AlarmPeriods(NamedTuple):
    """How long a metric has to be too high or too low."""

    seconds: int
    """of one period"""
    high: int
    low: int


def periods_of(configuration: Mapping[str, Any], scale_in_seconds: int) -> AlarmPeriods:
    """`scale_in_seconds` is how long the metric has to be low, whatever its resolution."""
    predefined = configuration.get("PredefinedMetricSpecification")
    seconds = PERIOD_SECONDS
    if predefined is not None:
        seconds = PREDEFINED_METRICS[predefined["PredefinedMetricType"]].period_seconds
    return AlarmPeriods(seconds, HIGH_PERIODS, max(1, scale_in_seconds // seconds))


def metric_of(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns what tells a policy's metric from another's."""
    found: Mapping[str, Any] = configuration.get(
        "PredefinedMetricSpecification"
    ) or configuration.get("CustomizedMetricSpecification", {})
    return found


def alarm_definitions(
    key: TargetKey, policy: PolicyRecord, unique: Mapping[str, str], scale_in_seconds: int
) -> list[dict[str, Any]]:
    """Returns PutMetricAlarm's parameters of a policy's alarms.

    Args:
        unique: the ends of the names of `AlarmHigh` and `AlarmLow`, and of the action (`action`).
    """
    configuration = policy.configuration
    periods = periods_of(configuration, scale_in_seconds)
    target = configuration["TargetValue"]
    action = f"{policy.arn}:createdBy/{unique['action']}"
    shared = {
        **_metric_members(key, configuration, periods.seconds),
        "AlarmDescription": f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {action}.",
        "ActionsEnabled": True,
        "AlarmActions": [action],
        "TreatMissingData": "missing",
    }

    def named(kind: str) -> str:
        return f"TargetTracking-{key.resource_id}-{kind}-{unique[kind]}"

    high = {
        **shared,
        "AlarmName": named("AlarmHigh"),
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": float(target),
        "EvaluationPeriods": periods.high,
    }
    if configuration.get("DisableScaleIn"):
        return [high]
    low = {
        **shared,
        "AlarmName": named("AlarmLow"),
        "ComparisonOperator": "LessThanThreshold",
        # Not 56.699999999999996: people read it, and compare.
        "Threshold": float(f"{LOW_SHARE * target:.12g}"),
        "EvaluationPeriods": periods.low,
    }
    return [high, low]


def _metric_members(
    key: TargetKey, configuration: Mapping[str, Any], period_seconds: int
) -> dict[str, Any]:
    predefined = configuration.get("PredefinedMetricSpecification")
    if predefined is not None:
        metric = PREDEFINED_METRICS[predefined["PredefinedMetricType"]]
        return {
            "Namespace": metric.namespace,
            "MetricName": metric.name,
            "Dimensions": _dimensions(key),
            "Statistic": metric.statistic,
            "Period": period_seconds,
        }
    customized = configuration["CustomizedMetricSpecification"]
    if "Metrics" in customized:
        return {"Metrics": [_query(query, period_seconds) for query in customized["Metrics"]]}
    return {**customized, "Period": period_seconds}


def _dimensions(key: TargetKey) -> list[dict[str, str]]:
    match: re.Match[str] | None = DIMENSIONS[key.dimension].resource_id.fullmatch(key.resource_id)
    assert match is not None
    return [{"Name": name, "Value": value} for name, value in match.groupdict().items()]


def _query(query: Mapping[str, Any], period_seconds: int) -> dict[str, Any]:
    if "MetricStat" not in query:
        return dict(query)
    return {**query, "MetricStat": {**query["MetricStat"], "Period": period_seconds}}
