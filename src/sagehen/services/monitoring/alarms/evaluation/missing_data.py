"""M out of N datapoints, some of which may be missing.

CloudWatch reads more datapoints than N, the evaluation range, and looks back over holes. Its guide
("Configuring how CloudWatch alarms treat missing data") gives examples, which these rules
reproduce; the size of the range is documented for N = 3 only.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from sagehen.services.monitoring.alarms.records import AlarmState

__all__ = ["EXTRA_PERIODS", "Treatment", "Verdict", "judge"]

EXTRA_PERIODS = 2
"""periods of the evaluation range beyond N"""


class Treatment(StrEnum):
    """The values of TreatMissingData."""

    BREACHING = "breaching"
    NOT_BREACHING = "notBreaching"
    IGNORE = "ignore"
    MISSING = "missing"


class Verdict(NamedTuple):
    state: AlarmState | None
    """None keeps the present state"""
    evaluated: tuple[int, ...] = ()
    """the periods whose datapoints were evaluated; 0 is the newest"""
    filled: int = 0
    """missing datapoints that were treated as breaching or not"""


def judge(
    values: Sequence[float | None],
    periods: int,
    to_alarm: int,
    breaches: Callable[[float], bool],
    treatment: Treatment,
) -> Verdict:
    """Decides the state.

    Args:
        values: of the evaluation range, newest first; None is a hole.
        periods: N, EvaluationPeriods.
        to_alarm: M, DatapointsToAlarm.
    """
    real = tuple(period for period, value in enumerate(values) if value is not None)
    evaluated = real[:periods]
    breaching = [period for period in evaluated if breaches(values[period])]  # type: ignore[arg-type]
    if len(real) >= periods:
        return Verdict(_alarm_if(len(breaching) >= to_alarm), evaluated)
    holes = periods - len(real)
    if treatment is Treatment.BREACHING:
        return Verdict(_alarm_if(len(breaching) + holes >= to_alarm), evaluated, holes)
    if treatment is Treatment.NOT_BREACHING:
        return Verdict(_alarm_if(len(breaching) >= to_alarm), evaluated, holes)
    if len(breaching) >= to_alarm:
        return Verdict(AlarmState.ALARM, evaluated)
    if len(breaching) < len(real):
        return Verdict(AlarmState.OK, evaluated)
    keeps = treatment is Treatment.IGNORE
    if not breaching:
        return Verdict(None if keeps else AlarmState.INSUFFICIENT_DATA, evaluated)
    # The newest datapoints breach, and what was before them is missing: too early for an alarm
    # until the oldest of them is M periods old.
    is_premature = breaching[-1] + 1 < to_alarm
    return Verdict(None if keeps or is_premature else AlarmState.ALARM, evaluated)


def _alarm_if(breaches: bool) -> AlarmState:
    return AlarmState.ALARM if breaches else AlarmState.OK
