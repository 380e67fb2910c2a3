"""StateReason and StateReasonData, in CloudWatch's wording."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from sagehen.services.monitoring.alarms.evaluation.missing_data import Treatment, Verdict
from sagehen.services.monitoring.alarms.records import AlarmState

__all__ = [
    "COMPARISONS",
    "Datapoint",
    "as_java",
    "as_timestamp",
    "period_of",
    "reason_data_of",
    "reason_of",
]

COMPARISONS = {
    "GreaterThanOrEqualToThreshold": "greater than or equal to",
    "GreaterThanThreshold": "greater than",
    "LessThanThreshold": "less than",
    "LessThanOrEqualToThreshold": "less than or equal to",
}
_TREATED_AS = {Treatment.BREACHING: "Breaching", Treatment.NOT_BREACHING: "NonBreaching"}
_MAX_LISTED = 4
"""datapoints that a reason lists before it only counts them"""
_MAX_REASON = 1023
_MAX_RECENT, _MAX_EVALUATED = 100, 12
"""that fit into StateReasonData"""


class Datapoint(NamedTuple):
    start: int
    """of its period, seconds since the epoch"""
    value: float | None
    """None for a hole"""
    sample_count: float | None = None
    """None for an expression's"""


def reason_of(
    definition: Mapping[str, Any],
    points: Sequence[Datapoint],
    verdict: Verdict,
    treatment: Treatment,
    breaching: frozenset[int],
) -> str:
    """Explains a verdict that has a state.

    Args:
        points: of the evaluation range, newest first.
        breaching: positions in `points`.
    """
    if not verdict.evaluated:
        return _reason_without_data(definition, verdict, treatment)
    is_alarm = verdict.state is AlarmState.ALARM
    supporting = [
        points[position] for position in verdict.evaluated if (position in breaching) == is_alarm
    ]
    if not supporting:
        received, periods = len(verdict.evaluated), definition["EvaluationPeriods"]
        return (
            f"Threshold Crossed: {_datapoints(received)} {_was(received)} received for "
            f"{_counted(periods, 'period')} and {_treated(verdict.filled, treatment)}."
        )
    return _reason_with_data(definition, supporting, verdict, treatment)[:_MAX_REASON]


def _reason_without_data(
    definition: Mapping[str, Any], verdict: Verdict, treatment: Treatment
) -> str:
    periods = definition["EvaluationPeriods"]
    if verdict.state is AlarmState.INSUFFICIENT_DATA:
        return f"Insufficient Data: {_datapoints(periods)} {_was(periods)} unknown."
    return (
        f"Threshold Crossed: no datapoints were received for {_counted(periods, 'period')} and "
        f"{_treated(verdict.filled, treatment)}."
    )


def _reason_with_data(
    definition: Mapping[str, Any],
    supporting: Sequence[Datapoint],
    verdict: Verdict,
    treatment: Treatment,
) -> str:
    is_alarm = verdict.state is AlarmState.ALARM
    count, is_long = len(supporting), len(supporting) > _MAX_LISTED
    listed = ", ".join(_listed(point) for point in supporting[:_MAX_LISTED])
    periods, to_alarm = definition["EvaluationPeriods"], definition.get("DatapointsToAlarm")
    verb = f"{'was' if count == 1 else 'were'} {'' if is_alarm else 'not '}"
    crossed = f"{verb}{COMPARISONS[definition['ComparisonOperator']]} the threshold " + (
        f"({as_java(definition['Threshold'])})"
    )
    if to_alarm is None:
        subject = _datapoints(count)
    else:
        subject = f"{count} out of the last {periods} datapoints"
    text = f"Threshold Crossed: {subject}{'' if is_long else f' [{listed}]'} {crossed}"
    if verdict.filled:
        text += f" and {_treated(verdict.filled, treatment)}"
    if is_long:
        which = (
            "The most recent datapoints which crossed the threshold"
            if is_alarm
            else ("The most recent datapoints")
        )
        text += f". {which}: [{listed}]"
    if to_alarm is not None:
        least = to_alarm if is_alarm else periods - to_alarm + 1
        change = "OK -> ALARM" if is_alarm else "ALARM -> OK"
        text += f" (minimum {_datapoints(least)} for {change} transition)"
    return f"{text}."


def reason_data_of(
    definition: Mapping[str, Any], points: Sequence[Datapoint], verdict: Verdict, now: float
) -> str:
    """Returns JSON. Newest points come last in `recentDatapoints` and first in
    `evaluatedDatapoints`, as in CloudWatch."""
    real = [points[position] for position in verdict.evaluated]
    # Without any data, the holes are listed.
    evaluated = real or list(points[: definition["EvaluationPeriods"]])
    data: dict[str, Any] = {"version": "1.0", "queryDate": as_timestamp(now)}
    if real:
        data["startDate"] = as_timestamp(real[-1].start)
    if "Unit" in definition:
        data["unit"] = definition["Unit"]
    statistic = definition.get("Statistic") or definition.get("ExtendedStatistic")
    if statistic is not None:
        data["statistic"] = statistic
    data["period"] = period_of(definition)
    data["recentDatapoints"] = [point.value for point in reversed(real[:_MAX_RECENT])]
    data["threshold"] = float(definition["Threshold"])
    data["evaluatedDatapoints"] = [_evaluated(point) for point in evaluated[:_MAX_EVALUATED]]
    return msgspec.json.encode(data).decode()


def period_of(definition: Mapping[str, Any]) -> int:
    """Returns the alarm's period in seconds."""
    if "Period" in definition:
        return int(definition["Period"])
    for query in definition["Metrics"]:
        if "MetricStat" in query:
            return int(query["MetricStat"]["Period"])
    return int(definition["Metrics"][0].get("Period", 60))


def _evaluated(point: Datapoint) -> dict[str, Any]:
    shown: dict[str, Any] = {"timestamp": as_timestamp(point.start)}
    if point.sample_count is not None:
        shown["sampleCount"] = point.sample_count
    if point.value is not None:
        shown["value"] = point.value
    return shown


def _listed(point: Datapoint) -> str:
    moment = datetime.fromtimestamp(point.start, UTC)
    return f"{as_java(point.value or 0.0)} ({moment:%d/%m/%y %H:%M:%S})"


def _treated(holes: int, treatment: Treatment) -> str:
    what = "datapoint was" if holes == 1 else "datapoints were"
    return f"{holes} missing {what} treated as [{_TREATED_AS[treatment]}]"


def _datapoints(count: int) -> str:
    return _counted(count, "datapoint")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def as_timestamp(seconds: float) -> str:
    """Returns a time as CloudWatch writes it in JSON: milliseconds and `+0000`."""
    # Rounded first: strftime cuts.
    moment = datetime.fromtimestamp(round(seconds, 3), UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}+0000"


def as_java(number: float) -> str:
    """Returns a number as Java prints it: 0.5, 12.0, 1.0E7, 2.5E-5."""
    number = float(number)
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    mantissa, _, exponent = f"{number!r}".lower().partition("e")
    if not exponent:
        # The shortest digits that Python knows, in scientific form.
        digits = mantissa.replace("-", "").replace(".", "").lstrip("0").rstrip("0") or "0"
        mantissa, _, exponent = f"{number:.{len(digits) - 1}e}".partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"
