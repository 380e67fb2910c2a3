"""Checks the parameters of PutMetricAlarm and PutCompositeAlarm, in CloudWatch's wording where it
is known."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from sagehen.services.monitoring.alarms.actions import is_scaling_policy, is_topic
from sagehen.services.monitoring.alarms.composite.rules import Rule, child_name, parse_rule
from sagehen.services.monitoring.alarms.evaluation.reasons import period_of
from sagehen.services.monitoring.cloudwatch.errors import (
    combination,
    invalid,
    missing,
    not_built,
    refused,
)
from sagehen.services.monitoring.cloudwatch.expressions.evaluator import check_expressions
from sagehen.services.monitoring.cloudwatch.metrics import STATISTICS, is_statistic, read_dimensions
from sagehen.services.monitoring.cloudwatch.queries import Query, read_queries

__all__ = [
    "HOUR",
    "MAX_METRICS",
    "read_composite_alarm",
    "read_metric_alarm",
]

HOUR, DAY, WEEK = 3600, 86_400, 7 * 86_400
MAX_METRICS = 10
MAX_EXPRESSIONS = 10
_FINE_PERIODS = (10, 20, 30)
_ACTION_LISTS = ("OKActions", "AlarmActions", "InsufficientDataActions")
_NOT_STORED = ("AlarmName", "ActionsEnabled", "Tags")
_METRIC_MEMBERS = (
    "MetricName",
    "Namespace",
    "Dimensions",
    "Period",
    "Unit",
    "Statistic",
    "ExtendedStatistic",
)
_NOT_BUILT = {
    "EvaluationCriteria": "EvaluationCriteria, that is alarms on PromQL queries",
    "EvaluationInterval": "EvaluationInterval, which is for alarms on PromQL queries",
    "ThresholdMetricId": "ThresholdMetricId, that is alarms on anomaly detection bands",
    "WarmUpConfiguration": "WarmUpConfiguration",
    "ActionConfiguration": "ActionConfiguration",
}
_TREATMENTS = ("breaching", "notBreaching", "ignore", "missing")
_LOW_SAMPLES = ("evaluate", "ignore")


def read_metric_alarm(params: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Returns the definition to store. Raises AwsError."""
    _check_name(params)
    for member, feature in _NOT_BUILT.items():
        if member in params:
            raise not_built(feature)
    if "WallClockWindow" in params.get("EvaluationWindow", {}):
        raise not_built("EvaluationWindow with a WallClockWindow; a SlidingWindow is")
    if "Metrics" in params:
        _check_metrics(params)
    else:
        _check_metric(params)
    _check_threshold(params)
    _check_options(params)
    _check_actions(params, region, are_composite=False)
    _check_window(params)
    return _definition(params)


def read_composite_alarm(
    params: Mapping[str, Any], region: str
) -> tuple[dict[str, Any], Rule, str | None]:
    """Returns the definition to store, its rule, and its suppressor's name. Raises AwsError."""
    _check_name(params)
    if "ActionConfiguration" in params:
        raise not_built(_NOT_BUILT["ActionConfiguration"])
    _check_actions(params, region, are_composite=True)
    rule = parse_rule(params["AlarmRule"])
    suppressor = params.get("ActionsSuppressor")
    periods = ("ActionsSuppressorWaitPeriod", "ActionsSuppressorExtensionPeriod")
    for period in periods:
        if suppressor is not None and period not in params:
            raise refused(f"The parameter {period} must be specified with ActionsSuppressor.")
        if suppressor is None and period in params:
            raise refused(f"The parameter {period} must be specified with ActionsSuppressor only.")
        if params.get(period, 0) < 0:
            raise refused(f"The parameter {period} must not be negative.")
    return _definition(params), rule, None if suppressor is None else child_name(suppressor)


def _definition(params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        member: value
        for member, value in params.items()
        if member not in _NOT_STORED and value is not None
    }


def _check_name(params: Mapping[str, Any]) -> None:
    if not params["AlarmName"].isprintable():
        raise refused(
            "The parameter AlarmName must not have control or other invisible characters."
        )


def _check_metric(params: Mapping[str, Any]) -> None:
    if "MetricName" not in params:
        raise refused(
            "Exactly one of MetricName, Metrics and EvaluationCriteria must be specified."
        )
    for member in ("Namespace", "Period"):
        if member not in params:
            raise missing(member)
    if ("Statistic" in params) == ("ExtendedStatistic" in params):
        raise combination(
            "Exactly one of the parameters Statistic and ExtendedStatistic must be specified."
        )
    statistic = params.get("ExtendedStatistic")
    if statistic is not None and (statistic in STATISTICS or not is_statistic(statistic)):
        raise invalid(f"The value {statistic} for parameter ExtendedStatistic is not supported.")
    _check_period(params["Period"], "Period")
    read_dimensions(params.get("Dimensions", ()), "Dimensions")


def _check_metrics(params: Mapping[str, Any]) -> None:
    if extra := [member for member in _METRIC_MEMBERS if params.get(member)]:
        raise combination(
            f"The parameters Metrics and {extra[0]} are mutually exclusive and you have specified "
            "both."
        )
    entries = params["Metrics"]
    if not entries:
        raise refused("The parameter Metrics must have at least one element.")
    for entry in entries:
        if "AccountId" in entry:
            raise not_built("AccountId: there is no other account here")
    queries = read_queries(entries, "Metrics")
    returned = [query.id for query in queries if query.is_returned]
    if len(returned) != 1:
        raise refused(
            "Exactly one element of the metrics list should return data; set ReturnData of the "
            f"others to false. These do: {', '.join(returned)}."
        )
    _check_queries(queries)


def _check_queries(queries: list[Query]) -> None:
    count = sum(query.expression is None for query in queries)
    if count > MAX_METRICS:
        raise refused(f"An alarm can have at most {MAX_METRICS} metrics; these are {count}.")
    if len(queries) - count > MAX_EXPRESSIONS:
        raise refused(
            f"An alarm can have at most {MAX_EXPRESSIONS} expressions; these are "
            f"{len(queries) - count}."
        )
    periods = {query.period for query in queries}
    if len(periods) > 1:
        listed = ", ".join(f"{period}" for period in sorted(periods))
        raise refused(f"All metrics of an alarm must have the same Period; these have {listed}.")
    (period,) = periods
    _check_period(period, "Metrics.MetricStat.Period")
    check_expressions(queries)


def _check_period(period: int, path: str) -> None:
    if period not in _FINE_PERIODS and (period % 60 or period <= 0):
        raise refused(
            f"The parameter {path} must be 10, 20, 30 or a multiple of 60; it is {period}."
        )


def _check_threshold(params: Mapping[str, Any]) -> None:
    for member in ("EvaluationPeriods", "ComparisonOperator", "Threshold"):
        if member not in params:
            raise missing(member)
    if "Upper" in params["ComparisonOperator"] or "Lower" in params["ComparisonOperator"]:
        raise not_built(
            f"ComparisonOperator {params['ComparisonOperator']}, that is alarms on anomaly "
            "detection bands"
        )
    if not math.isfinite(params["Threshold"]):
        raise invalid("The value for parameter Threshold is invalid: it is not a finite number.")
    if params.get("DatapointsToAlarm", 1) > params["EvaluationPeriods"]:
        raise refused(
            "The parameter DatapointsToAlarm must be less than or equal to EvaluationPeriods."
        )


def _check_options(params: Mapping[str, Any]) -> None:
    for member, options in (
        ("TreatMissingData", _TREATMENTS),
        ("EvaluateLowSampleCountPercentile", _LOW_SAMPLES),
    ):
        option = params.get(member)
        if option is not None and option not in options:
            listed = f"{', '.join(options[:-1])} and {options[-1]}"
            raise refused(
                f"Option {option} is not supported. Supported options for parameter {member} are "
                f"{listed}."
            )


def _check_window(params: Mapping[str, Any]) -> None:
    period = period_of(params)
    seconds = period * params["EvaluationPeriods"]
    if period < HOUR and seconds > DAY:
        raise refused(
            "Metrics cannot be checked across more than a day (EvaluationPeriods * Period must be "
            f"<= {DAY})."
        )
    if seconds > WEEK:
        raise refused(
            "Metrics cannot be checked across more than a week (EvaluationPeriods * Period must "
            f"be <= {WEEK})."
        )


def _check_actions(params: Mapping[str, Any], region: str, are_composite: bool) -> None:
    for arn in _action_arns(params):
        parts = arn.split(":", 5)
        if len(parts) != 6 or parts[0] != "arn":
            raise refused(f"Invalid arn syntax: {arn[:256]}")
        if not is_topic(arn) and not is_scaling_policy(arn):
            raise not_built(
                f"the action {arn[:256]}; an alarm's actions are SNS topics and scaling policies"
            )
        if parts[3] != region:
            raise refused(f"Invalid region {parts[3]} specified. Only {region} is supported.")
        if are_composite and is_scaling_policy(arn):
            raise refused(
                f"The action {arn[:256]} is a scaling policy, which a composite alarm cannot "
                "invoke; let a metric alarm do it."
            )


def _action_arns(params: Mapping[str, Any]) -> Iterable[str]:
    for member in _ACTION_LISTS:
        yield from params.get(member) or ()
