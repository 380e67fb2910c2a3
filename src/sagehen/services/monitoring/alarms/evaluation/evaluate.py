"""Evaluates a metric alarm: datapoints in, state and its reason out."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sagehen.services.monitoring.alarms.evaluation.missing_data import (
    EXTRA_PERIODS,
    Treatment,
    judge,
)
from sagehen.services.monitoring.alarms.evaluation.reasons import (
    Datapoint,
    period_of,
    reason_data_of,
    reason_of,
)
from sagehen.services.monitoring.alarms.records import AlarmState
from sagehen.services.monitoring.cloudwatch.extended_statistics import low_sample_count
from sagehen.services.monitoring.cloudwatch.sample_reads import Window

__all__ = ["Evaluation", "evaluate", "window_of"]

MINUTE, HOUR, DAY = 60, 3600, 86_400
LATE_SECONDS = 6.0
"""samples of a period are stored some seconds after its end"""

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


class Evaluation(NamedTuple):
    state: AlarmState | None
    """None keeps the present state"""
    values: tuple[float, ...]
    """the real datapoints that were evaluated, newest first"""
    reason: str = ""
    reason_data: str | None = None


def window_of(definition: Mapping[str, Any], now: float) -> Window:
    """Returns the evaluation range: whole periods that have ended."""
    period, periods = period_of(definition), definition["EvaluationPeriods"]
    step = period if period < MINUTE else MINUTE
    if period * periods > DAY:
        step = HOUR
    # Multiples of ten seconds also for periods of 20 and 30.
    step = 10 if step < MINUTE else step
    end = int((now - LATE_SECONDS) // step) * step
    return Window(end - period * (periods + EXTRA_PERIODS), end, period)


def evaluate(
    definition: Mapping[str, Any], points: Sequence[Datapoint], present: AlarmState, now: float
) -> Evaluation:
    """Reasons are made only for a state other than the present one.

    Args:
        points: of all periods of the evaluation range, newest first.
    """
    compare, threshold = _COMPARE[definition["ComparisonOperator"]], definition["Threshold"]
    treatment = Treatment(definition.get("TreatMissingData", Treatment.MISSING))
    periods = definition["EvaluationPeriods"]
    verdict = judge(
        [point.value for point in points],
        periods,
        definition.get("DatapointsToAlarm", periods),
        lambda value: compare(value, threshold),
        treatment,
    )
    values = tuple(
        value for position in verdict.evaluated if (value := points[position].value) is not None
    )
    if _has_few_samples(definition, [points[position] for position in verdict.evaluated]):
        return Evaluation(None, values)
    if verdict.state in (None, present):
        return Evaluation(verdict.state, values)
    breaching = frozenset(
        position
        for position in verdict.evaluated
        if (value := points[position].value) is not None and compare(value, threshold)
    )
    reason = reason_of(definition, points, verdict, treatment, breaching)
    return Evaluation(
        verdict.state, values, reason, reason_data_of(definition, points, verdict, now)
    )


def _has_few_samples(definition: Mapping[str, Any], evaluated: Sequence[Datapoint]) -> bool:
    if definition.get("EvaluateLowSampleCountPercentile") != "ignore":
        return False
    least = low_sample_count(definition.get("ExtendedStatistic", ""))
    return any(point.sample_count is not None and point.sample_count < least for point in evaluated)
