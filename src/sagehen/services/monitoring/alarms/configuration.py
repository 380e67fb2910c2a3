"""Creates, replaces and deletes alarms in the caller's transaction, with history and events."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace
from sqlalchemy import Connection

from sagehen.frame import tags
from sagehen.frame.arns import ArnMaker
from sagehen.services.monitoring.alarms import history, store
from sagehen.services.monitoring.alarms.actions import AlarmActions
from sagehen.services.monitoring.alarms.composite.cascade import cascade, evaluate_rule
from sagehen.services.monitoring.alarms.errors import conflict
from sagehen.services.monitoring.alarms.messages import (
    CREATE,
    DELETE,
    UPDATE,
    configuration_event,
)
from sagehen.services.monitoring.alarms.records import AlarmKind, AlarmRecord, AlarmState
from sagehen.services.monitoring.alarms.validation import read_composite_alarm, read_metric_alarm
from sagehen.services.monitoring.cloudwatch.errors import over_limit, refused
from sagehen.state.database import notify

__all__ = ["AlarmChanges"]

INITIAL_REASON = "Unchecked: Initial alarm creation"
MAX_PARENTS = 150
"""composite alarms that name one alarm"""


@dataclass(frozen=True, kw_only=True)
class AlarmChanges:
    """Changes alarms; each method runs in the caller's transaction."""

    arns: ArnMaker
    actions: AlarmActions
    max_alarms: int

    def put_metric_alarm(
        self,
        connection: Connection,
        params: Mapping[str, Any],
        new_tags: Mapping[str, str],
        now: float,
    ) -> AlarmRecord:
        """Takes the parameters of PutMetricAlarm. Raises AwsError."""
        definition = read_metric_alarm(params, self.arns.region)
        record, previous = self._record(connection, AlarmKind.METRIC, params, definition, now)
        store.put(connection, record)
        notify(connection, store.ALARMS_CHANGED, record.name)
        self._tell(connection, record, previous, new_tags, now)
        return record

    def put_composite_alarm(
        self,
        connection: Connection,
        params: Mapping[str, Any],
        new_tags: Mapping[str, str],
        now: float,
    ) -> AlarmRecord:
        """Takes the parameters of PutCompositeAlarm. Raises AwsError."""
        definition, rule, suppressor = read_composite_alarm(params, self.arns.region)
        record, previous = self._record(connection, AlarmKind.COMPOSITE, params, definition, now)
        named = {*rule.names} | ({suppressor} if suppressor is not None else set())
        _check_children(connection, record.name, named)
        store.put(connection, record)
        store.set_children(connection, record.name, rule.names, suppressor)
        self._tell(connection, record, previous, new_tags, now)
        verb = "created" if previous is None else "updated"
        changed = evaluate_rule(connection, record, verb, self.actions, now)
        if changed.state is not record.state:
            cascade(connection, [changed], self.actions, now)
        return changed

    def delete(
        self, connection: Connection, names: Collection[str], now: float, force: bool = False
    ) -> None:
        """Deletes those that exist.

        Args:
            force: also alarms that composite alarms name.

        Raises:
            AwsError: a composite alarm that stays names one of them; or two are composite.
        """
        found = store.get_some(connection, names, lock=True)
        if not force:
            _check_deletion(connection, found)
        store.delete(connection, found.keys())
        for record in found.values():
            tags.drop(connection, record.arn)
            history.add_configuration_update(connection, record, DELETE, now)
            event = configuration_event(DELETE, record, None, now)
            self.actions.put_event(connection, event)

    def _record(
        self,
        connection: Connection,
        kind: AlarmKind,
        params: Mapping[str, Any],
        definition: dict[str, Any],
        now: float,
    ) -> tuple[AlarmRecord, AlarmRecord | None]:
        """Returns the record to write, and what it replaces."""
        name = params["AlarmName"]
        actions_enabled = params.get("ActionsEnabled", True)
        previous = store.get(connection, name, lock=True)
        if previous is None:
            count = store.count(connection)
            if count >= self.max_alarms:
                raise over_limit(
                    f"There are {count} alarms, as many as the setting max_alarms allows."
                )
            record = AlarmRecord(
                name=name,
                kind=kind,
                arn=self.arns.alarm(name),
                definition=definition,
                actions_enabled=actions_enabled,
                created_at=now,
                configured_at=now,
                state=AlarmState.INSUFFICIENT_DATA,
                reason=INITIAL_REASON,
                updated_at=now,
                transitioned_at=now,
            )
            return record, None
        if previous.kind is not kind:
            raise refused(
                f"The alarm {name} is a {previous.kind}; delete it before you make a {kind} of "
                "that name."
            )
        record = replace(
            previous, definition=definition, actions_enabled=actions_enabled, configured_at=now
        )
        return record, previous

    def _tell(
        self,
        connection: Connection,
        record: AlarmRecord,
        previous: AlarmRecord | None,
        new_tags: Mapping[str, str],
        now: float,
    ) -> None:
        if previous is None:
            # As in CloudWatch, tags count only when an alarm is made.
            tags.put(connection, record.arn, new_tags)
        operation = CREATE if previous is None else UPDATE
        history.add_configuration_update(connection, record, operation, now)
        event = configuration_event(operation, record, previous, now)
        self.actions.put_event(connection, event)


def _check_children(connection: Connection, name: str, children: Collection[str]) -> None:
    missing = sorted(set(children) - store.existing(connection, children) - {name})
    if missing:
        raise refused(
            f"Could not save the composite alarm as alarms [{', '.join(missing)}] in the alarm "
            "rule do not exist"
        )
    parents: dict[str, set[str]] = {}
    for parent in store.parents_of(connection, children):
        if parent.name != name:
            parents.setdefault(parent.child, set()).add(parent.name)
    for child, named_by in parents.items():
        if len(named_by) >= MAX_PARENTS:
            raise over_limit(f"{MAX_PARENTS} composite alarms name the alarm {child} already.")


def _check_deletion(connection: Connection, found: Mapping[str, AlarmRecord]) -> None:
    composite = [name for name, record in found.items() if record.kind is AlarmKind.COMPOSITE]
    if len(composite) > 1:
        raise refused(
            "Only one composite alarm can be deleted at a time; these are composite: "
            f"{', '.join(composite)}."
        )
    for parent in store.parents_of(connection, found.keys()):
        if parent.name not in found:
            raise conflict(
                f"The alarm {parent.child} is in the rule of the composite alarm {parent.name}, or "
                "suppresses its actions. Change or delete that alarm first; to break a cycle, set "
                "its AlarmRule to FALSE."
            )
