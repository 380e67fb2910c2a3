"""The alarms of simulated policies."""

from collections.abc import Mapping
from typing import Any

from sagehen.services.autoscaling.errors import invalid
from sagehen.services.autoscaling.simulation import SimulatedAlarm
from sagehen.services.autoscaling.tracking_alarms import LOW_SHARE, periods_of

__all__ = ["step_alarm", "tracking_alarms"]

SCALE_IN_SECONDS = 900
_COMPARISONS = (
    "GreaterThanThreshold",
    "GreaterThanOrEqualToThreshold",
    "LessThanThreshold",
    "LessThanOrEqualToThreshold",
)


def tracking_alarms(name: str, configuration: Mapping[str, Any]) -> tuple[SimulatedAlarm, ...]:
    """Returns the alarms that Application Auto Scaling would make."""
    periods = periods_of(configuration, SCALE_IN_SECONDS)
    target = configuration["TargetValue"]
    high = SimulatedAlarm(
        name=f"{name}-AlarmHigh",
        comparison="GreaterThanThreshold",
        threshold=target,
        period_seconds=periods.seconds,
        periods=periods.high,
        datapoints=periods.high,
    )
    low = SimulatedAlarm(
        name=f"{name}-AlarmLow",
        comparison="LessThanThreshold",
        threshold=LOW_SHARE * target,
        period_seconds=periods.seconds,
        periods=periods.low,
        datapoints=periods.low,
    )
    return (high,) if configuration.get("DisableScaleIn") else (high, low)


def step_alarm(name: str, alarm: Mapping[str, Any] | None) -> SimulatedAlarm:
    """Reads the parameters of PutMetricAlarm that matter here; raises AwsError."""
    if not isinstance(alarm, dict):
        raise invalid(
            "A step policy is called by an alarm of your own. Give it as `Alarm`: the parameters "
            "Threshold, ComparisonOperator and EvaluationPeriods of PutMetricAlarm."
        )
    comparison = alarm["ComparisonOperator"]
    if comparison not in _COMPARISONS:
        raise invalid(f"ComparisonOperator {comparison!r} is not one of {', '.join(_COMPARISONS)}.")
    periods, period = int(alarm["EvaluationPeriods"]), int(alarm.get("Period", 60))
    datapoints = int(alarm.get("DatapointsToAlarm", periods))
    if not 1 <= datapoints <= periods:
        raise invalid("DatapointsToAlarm is from 1 to EvaluationPeriods.")
    if period not in (10, 20, 30) and (period < 60 or period % 60):
        raise invalid(f"Period is 10, 20, 30 or a multiple of 60, not {period}.")
    return SimulatedAlarm(
        name=str(alarm.get("AlarmName", f"{name}-alarm")),
        comparison=comparison,
        threshold=float(alarm["Threshold"]),
        period_seconds=period,
        periods=periods,
        datapoints=datapoints,
    )
