"""Changes the state of alarms in the caller's transaction, with history, events and actions.

set_state → history · event · actions → composite alarms that name the alarm → the same for each
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection

from sagehen.services.monitoring.alarms import history, store
from sagehen.services.monitoring.alarms.actions import (
    AlarmActions,
    PolicyTrigger,
    is_scaling_policy,
    is_topic,
)
from sagehen.services.monitoring.alarms.messages import notification, state_event
from sagehen.services.monitoring.alarms.records import AlarmKind, AlarmRecord, AlarmState

__all__ = [
    "NO_DATAPOINTS",
    "NewState",
    "change_state",
    "invoke_policies",
    "perform_actions",
    "values_in",
]

NO_DATAPOINTS = "Failed to execute AutoScaling action: Metric data points must be provided"


class NewState(NamedTuple):
    state: AlarmState
    reason: str
    reason_data: str | None
    values: tuple[float, ...] = ()
    """real datapoints, newest first"""


def change_state(
    connection: Connection,
    old: AlarmRecord,
    new_state: NewState,
    actions: AlarmActions,
    now: float,
) -> AlarmRecord:
    """Writes the state and does what follows from it, but for composite alarms; returns the new
    record. A state that stays the same only gets another reason."""
    changed = replace(
        old,
        state=new_state.state,
        reason=new_state.reason,
        reason_data=new_state.reason_data,
        updated_at=now,
    )
    if new_state.state is old.state:
        store.put_state(connection, changed)
        return changed
    changed = replace(
        changed,
        transitioned_at=now,
        policies_invoked_at=None,
        policy_outcome=None,
        suppressed_by=None,
        suppressed_until=None,
    )
    history.add_state_update(connection, old, changed)
    if changed.kind is AlarmKind.METRIC:
        actions.put_event(connection, state_event(old, changed))
        changed = perform_actions(connection, old, changed, new_state.values, actions, now)
    store.put_state(connection, changed)
    return changed


def perform_actions(
    connection: Connection,
    old: AlarmRecord,
    new: AlarmRecord,
    values: tuple[float, ...],
    actions: AlarmActions,
    now: float,
) -> AlarmRecord:
    """Runs the actions for the new state; returns the record to write."""
    if not new.actions_enabled:
        return new
    triggers = _triggers(new)
    for arn in new.actions(new.state):
        if is_topic(arn):
            message = notification(arn, old, new, triggers)._replace(published_at=now)
            sent = actions.publish(connection, message)
            failure = None if sent else f"Failed to execute action {arn}"
            history.add_action(connection, new, arn, failure, now)
    return invoke_policies(connection, new, values, actions, now)


def invoke_policies(
    connection: Connection,
    record: AlarmRecord,
    values: tuple[float, ...],
    actions: AlarmActions,
    now: float,
) -> AlarmRecord:
    """Invokes the scaling policies for the present state; returns the record to write.

    The history tells the first outcome in a state, and later ones that differ.
    """
    arns = [arn for arn in record.actions(record.state) if is_scaling_policy(arn)]
    if not arns or not record.actions_enabled:
        return record
    outcomes: dict[str, str | None] = {}
    if record.policy_outcome is not None:
        outcomes = msgspec.json.decode(record.policy_outcome, type=dict[str, str | None])
    for arn in arns:
        failure = _invoke(connection, record, arn, values, actions, now)
        if arn not in outcomes or outcomes[arn] != failure:
            history.add_action(connection, record, arn, failure, now)
        outcomes[arn] = failure
    outcome = msgspec.json.encode({arn: outcomes[arn] for arn in arns}).decode()
    return replace(record, policies_invoked_at=now, policy_outcome=outcome)


def values_in(reason_data: str | None) -> tuple[float, ...]:
    """Returns the datapoints of a StateReasonData, newest first."""
    if reason_data is None:
        return ()
    try:
        data = msgspec.json.decode(reason_data)
    except msgspec.DecodeError:
        return ()
    recent = data.get("recentDatapoints") if isinstance(data, dict) else None
    if not isinstance(recent, list):
        return ()
    numbers = map(_number, reversed(recent))
    return tuple(number for number in numbers if number is not None)


def _number(value: object) -> float | None:
    # Reject `true`: bool is a subclass of int.
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _invoke(
    connection: Connection,
    record: AlarmRecord,
    arn: str,
    values: tuple[float, ...],
    actions: AlarmActions,
    now: float,
) -> str | None:
    """Returns the history's summary of a failure."""
    if not values:
        return NO_DATAPOINTS
    trigger = PolicyTrigger(
        action_arn=arn,
        alarm_name=record.name,
        threshold=float(record.definition["Threshold"]),
        comparison=record.definition["ComparisonOperator"],
        values=values,
    )
    failure = actions.invoke_policy(connection, trigger, datetime.fromtimestamp(now, UTC))
    return None if failure is None else f"Failed to execute AutoScaling action: {failure}"


class _ChildState(msgspec.Struct):
    value: str
    timestamp: str


class _Trigger(msgspec.Struct):
    arn: str
    state: _ChildState


class _CompositeReason(msgspec.Struct, rename="camel"):
    """A composite alarm's StateReasonData."""

    triggering_alarms: list[_Trigger] = []


def _triggers(record: AlarmRecord) -> Sequence[Mapping[str, Any]]:
    """Returns the children that changed a composite alarm."""
    if record.kind is not AlarmKind.COMPOSITE or record.reason_data is None:
        return ()
    try:
        reason = msgspec.json.decode(record.reason_data, type=_CompositeReason)
    except msgspec.MsgspecError:
        return ()  # SetAlarmState takes any JSON object.
    return [msgspec.to_builtins(trigger) for trigger in reason.triggering_alarms]
