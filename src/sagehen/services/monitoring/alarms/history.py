"""The history of alarms: what is written, for how long, and DescribeAlarmHistory's pages."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, func, insert, select

from sagehen.services.monitoring.alarms.evaluation.reasons import as_timestamp
from sagehen.services.monitoring.alarms.messages import configuration_of
from sagehen.services.monitoring.alarms.records import (
    AlarmKind,
    AlarmRecord,
    HistoryItem,
    HistoryItemType,
)
from sagehen.services.monitoring.alarms.tables import ALARM_HISTORY

__all__ = [
    "HISTORY_SECONDS",
    "add_action",
    "add_configuration_update",
    "add_state_update",
    "page",
    "prune",
]

HISTORY_SECONDS = 30 * 86_400.0
"""as in CloudWatch"""
_MAX_SUMMARY, _MAX_DATA = 255, 4095
"""characters"""
_CHANGES = {
    "create": ("created", "Create", "createdAlarm"),
    "update": ("updated", "Update", "updatedAlarm"),
    "delete": ("deleted", "Delete", "deletedAlarm"),
}


def add_configuration_update(
    connection: Connection, record: AlarmRecord, operation: str, now: float
) -> None:
    """`operation` is `create`, `update` or `delete`."""
    verb, kind, member = _CHANGES[operation]
    data = {"version": "1.0", "type": kind, member: configuration_of(record)}
    if len(_json(data)) > _MAX_DATA:
        data = {"version": "1.0", "type": kind}
    item_type, summary = HistoryItemType.CONFIGURATION_UPDATE, f'Alarm "{record.name}" {verb}'
    _add(connection, record, item_type, summary, data, now)


def add_state_update(connection: Connection, old: AlarmRecord, new: AlarmRecord) -> None:
    data = {"version": "1.0", "oldState": _state(old), "newState": _state(new)}
    for record, member in ((old, "oldState"), (new, "newState")):
        if len(_json(data)) > _MAX_DATA:
            data[member] = {"stateValue": record.state, "stateReason": record.reason}
    summary = f"Alarm updated from {old.state} to {new.state}"
    _add(connection, new, HistoryItemType.STATE_UPDATE, summary, data, new.updated_at)


def add_action(
    connection: Connection, record: AlarmRecord, arn: str, failure: str | None, now: float
) -> None:
    """`failure` is the summary of an action that failed."""
    data = {
        "version": "1.0",
        "actionState": "Succeeded" if failure is None else "Failed",
        "notificationResource": arn,
        "stateUpdateTimestamp": as_timestamp(record.updated_at),
    }
    if failure is not None:
        data["error"] = failure
    summary = f"Successfully executed action {arn}" if failure is None else failure
    _add(connection, record, HistoryItemType.ACTION, summary, data, now)


def page(
    connection: Connection,
    *,
    name: str | None,
    kinds: Sequence[AlarmKind],
    item_type: str | None,
    start: float | None,
    end: float | None,
    after: int | None,
    ascending: bool,
    limit: int,
) -> list[tuple[int, HistoryItem]]:
    """Returns items with their numbers, in the order in which they were written or the reverse.

    Args:
        after: number of the last item of the page before.
    """
    columns = ALARM_HISTORY.c
    where: list[ColumnElement[bool]] = [columns.kind.in_(kinds)]
    if name is not None:
        where.append(columns.name == name)
    if item_type is not None:
        where.append(columns.item_type == item_type)
    if start is not None:
        where.append(columns.happened_at >= start)
    if end is not None:
        where.append(columns.happened_at <= end)
    if after is not None:
        where.append(columns.item_id > after if ascending else columns.item_id < after)
    order = columns.item_id.asc() if ascending else columns.item_id.desc()
    fields = HistoryItem.__struct_fields__
    statement = select(columns.item_id, *(columns[field] for field in fields))
    rows = connection.execute(statement.where(*where).order_by(order).limit(limit))
    return [
        (number, msgspec.convert(dict(zip(fields, values, strict=True)), HistoryItem))
        for number, *values in rows
    ]


def prune(connection: Connection, before: float, most: int) -> None:
    """Deletes items from before a time, and the oldest beyond `most`."""
    connection.execute(delete(ALARM_HISTORY).where(ALARM_HISTORY.c.happened_at < before))
    newest = connection.scalar(select(func.max(ALARM_HISTORY.c.item_id)))
    if newest is not None:
        # Numbers have few gaps, as only the oldest items are deleted.
        connection.execute(delete(ALARM_HISTORY).where(ALARM_HISTORY.c.item_id <= newest - most))


def _state(record: AlarmRecord) -> dict[str, Any]:
    state: dict[str, Any] = {"stateValue": record.state, "stateReason": record.reason}
    if record.reason_data is not None:
        # An object here, and not a text as in DescribeAlarms.
        state["stateReasonData"] = msgspec.Raw(record.reason_data.encode())
    return state


def _add(
    connection: Connection,
    record: AlarmRecord,
    item_type: HistoryItemType,
    summary: str,
    data: Mapping[str, Any],
    now: float,
) -> None:
    item = HistoryItem(
        name=record.name,
        kind=record.kind,
        happened_at=now,
        item_type=item_type,
        summary=summary[:_MAX_SUMMARY],
        data=_json(data),
    )
    connection.execute(insert(ALARM_HISTORY), [msgspec.to_builtins(item)])


def _json(data: Mapping[str, Any]) -> str:
    return msgspec.json.encode(data).decode()
