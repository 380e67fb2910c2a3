"""Re-evaluates composite alarms after their children changed, in the same transaction.

Each is evaluated once, after its children. A composite alarm whose rule leads back to it is not
evaluated.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection

from sagehen.services.monitoring.alarms import store
from sagehen.services.monitoring.alarms.actions import AlarmActions
from sagehen.services.monitoring.alarms.composite.order import evaluation_order
from sagehen.services.monitoring.alarms.composite.rules import parse_rule
from sagehen.services.monitoring.alarms.composite.suppression import (
    Suppressor,
    after_suppressor,
    after_transition,
    is_over,
)
from sagehen.services.monitoring.alarms.evaluation.reasons import as_timestamp
from sagehen.services.monitoring.alarms.messages import state_event
from sagehen.services.monitoring.alarms.records import AlarmRecord, AlarmState
from sagehen.services.monitoring.alarms.store import Parent
from sagehen.services.monitoring.alarms.transitions import (
    NewState,
    change_state,
    perform_actions,
)

__all__ = ["cascade", "end_suppression_periods", "evaluate_rule", "set_composite_state"]


def cascade(
    connection: Connection, changed: Iterable[AlarmRecord], actions: AlarmActions, now: float
) -> None:
    """Evaluates what names the changed alarms, and what names that."""
    changes = {record.name: record for record in changed}
    above = _links_above(connection, changes)
    children: dict[str, list[str]] = {}
    for parent in above:
        if not parent.is_suppressor:
            children.setdefault(parent.name, []).append(parent.child)
    for name in evaluation_order(children):
        child = next((changes[child] for child in children[name] if child in changes), None)
        record = store.get(connection, name, lock=True) if child is not None else None
        if child is not None and record is not None:
            new = _evaluated_after(connection, record, child, actions, now)
            if new.state is not record.state:
                changes[name] = new
    for parent in above:
        if parent.is_suppressor and parent.child in changes:
            _suppressor_changed(connection, parent.name, changes[parent.child], actions, now)


def _links_above(connection: Connection, names: Iterable[str]) -> list[Parent]:
    """Returns the links from composite alarms to any of `names` and, through rules, on upwards."""
    links: list[Parent] = []
    new = seen = set(names)
    while new:
        found = store.parents_of(connection, new)
        links += found
        new = {parent.name for parent in found if not parent.is_suppressor} - seen
        seen = seen | new
    return links


def evaluate_rule(
    connection: Connection, record: AlarmRecord, verb: str, actions: AlarmActions, now: float
) -> AlarmRecord:
    """Evaluates a rule that was just `created` or `updated`."""
    if leads_to_itself(connection, record.name):
        return record
    state = _state_of(connection, record)
    reason = f"{record.arn} was {verb} and its alarm rule evaluates to {state}"
    new_state = NewState(state, reason, _reason_data(()))
    return set_composite_state(connection, record, new_state, actions, now)


def set_composite_state(
    connection: Connection,
    old: AlarmRecord,
    new_state: NewState,
    actions: AlarmActions,
    now: float,
) -> AlarmRecord:
    """Writes the state; its actions run unless they are suppressed."""
    changed = change_state(connection, old, new_state, actions, now)
    if changed.state is old.state:
        return changed
    suppression = after_transition(changed, _suppressor(connection, changed), now)
    if suppression is not None:
        changed = replace(changed, suppressed_by=suppression.by, suppressed_until=suppression.until)
    actions.put_event(connection, state_event(old, changed))
    if suppression is None:
        changed = perform_actions(connection, old, changed, (), actions, now)
    store.put_state(connection, changed)
    return changed


def end_suppression_periods(connection: Connection, actions: AlarmActions, now: float) -> None:
    """Runs the actions of composite alarms whose WaitPeriod or ExtensionPeriod is over."""
    for waiting in store.suppressed_by_period(connection):
        if is_over(waiting, now):
            record = store.get(connection, waiting.name, lock=True)
            if record is not None and is_over(record, now):
                _release(connection, record, actions, now)


def leads_to_itself(connection: Connection, name: str) -> bool:
    if all(parent.is_suppressor for parent in store.parents_of(connection, [name])):
        return False  # Most are named by none.
    seen: set[str] = set()
    new = store.children_of_all(connection, {name})
    while new:
        if name in new:
            return True
        seen |= new
        new = store.children_of_all(connection, new) - seen
    return False


def _evaluated_after(
    connection: Connection,
    record: AlarmRecord,
    child: AlarmRecord,
    actions: AlarmActions,
    now: float,
) -> AlarmRecord:
    state = _state_of(connection, record)
    if state is record.state:
        return record
    moment = datetime.fromtimestamp(child.transitioned_at, UTC)
    when = f"{moment:%A} {moment.day:02d} {moment:%B}, {moment:%Y %H:%M:%S} UTC"
    reason = f"{child.arn} transitioned to {child.state} at {when}"
    new_state = NewState(state, reason, _reason_data([child]))
    return set_composite_state(connection, record, new_state, actions, now)


def _state_of(connection: Connection, record: AlarmRecord) -> AlarmState:
    rule = parse_rule(record.definition["AlarmRule"])
    children = store.get_some(connection, rule.names)
    holds = rule.holds({name: child.state for name, child in children.items()})
    return AlarmState.ALARM if holds else AlarmState.OK


def _reason_data(children: Iterable[AlarmRecord]) -> str:
    triggers = [
        {
            "arn": child.arn,
            "state": {"value": child.state, "timestamp": as_timestamp(child.transitioned_at)},
        }
        for child in children
    ]
    return msgspec.json.encode({"triggeringAlarms": triggers}).decode()


def _suppressor(connection: Connection, record: AlarmRecord) -> Suppressor | None:
    name = store.suppressor_of(connection, record.name)
    if name is None:
        return None
    suppressor = store.get(connection, name)
    definition = record.definition
    return Suppressor(
        is_in_alarm=suppressor is not None and suppressor.state is AlarmState.ALARM,
        wait_seconds=definition["ActionsSuppressorWaitPeriod"],
        extension_seconds=definition["ActionsSuppressorExtensionPeriod"],
    )


def _suppressor_changed(
    connection: Connection, name: str, child: AlarmRecord, actions: AlarmActions, now: float
) -> None:
    record = store.get(connection, name, lock=True)
    if record is None or record.suppressed_by is None:
        return
    suppressor = _suppressor(connection, record)
    if suppressor is None:
        return
    is_in_alarm = child.state is AlarmState.ALARM
    suppression = after_suppressor(record, suppressor._replace(is_in_alarm=is_in_alarm), now)
    if suppression is None:
        _release(connection, record, actions, now)
    else:
        changed = replace(record, suppressed_by=suppression.by, suppressed_until=suppression.until)
        store.put_state(connection, changed)


def _release(
    connection: Connection, record: AlarmRecord, actions: AlarmActions, now: float
) -> None:
    released = replace(record, suppressed_by=None, suppressed_until=None)
    # The state before is in the history only; a composite alarm has two.
    before = AlarmState.OK if record.state is AlarmState.ALARM else AlarmState.ALARM
    old = replace(released, state=before)
    store.put_state(connection, perform_actions(connection, old, released, (), actions, now))
