"""When the actions of a composite alarm wait for its suppressor.

state changes ─┬─ suppressor in ALARM ──────────────► suppressed by Alarm ─┐ leaves ALARM
               └─ else: WaitPeriod ─┬─ goes into ALARM ──▲   ▲              ▼
                                    │            into ALARM └── ExtensionPeriod
                                    └─ over: actions run            └─ over: actions run

A change of the composite alarm's state begins anew.
"""

from typing import NamedTuple

from sagehen.services.monitoring.alarms.records import AlarmRecord, Suppression

__all__ = ["Suppressed", "Suppressor", "after_suppressor", "after_transition", "is_over"]


class Suppressor(NamedTuple):
    is_in_alarm: bool
    wait_seconds: float
    extension_seconds: float


class Suppressed(NamedTuple):
    by: Suppression
    until: float | None
    """end of a period, seconds since the epoch"""


def after_transition(
    record: AlarmRecord, suppressor: Suppressor | None, now: float
) -> Suppressed | None:
    """Returns why the actions for a new state do not run yet; None if they do."""
    if suppressor is None or not record.actions_enabled:
        return None
    if suppressor.is_in_alarm:
        return Suppressed(Suppression.ALARM, None)
    if suppressor.wait_seconds > 0:
        return Suppressed(Suppression.WAIT_PERIOD, now + suppressor.wait_seconds)
    return None


def after_suppressor(record: AlarmRecord, suppressor: Suppressor, now: float) -> Suppressed | None:
    """Returns how a suppressed alarm goes on after its suppressor changed; None if its actions
    run."""
    if suppressor.is_in_alarm:
        return Suppressed(Suppression.ALARM, None)
    if record.suppressed_by is Suppression.ALARM:
        if suppressor.extension_seconds > 0:
            return Suppressed(Suppression.EXTENSION_PERIOD, now + suppressor.extension_seconds)
        return None
    # A period goes on while the suppressor is in other states.
    assert record.suppressed_by is not None
    return Suppressed(record.suppressed_by, record.suppressed_until)


def is_over(record: AlarmRecord, now: float) -> bool:
    return record.suppressed_until is not None and record.suppressed_until <= now
