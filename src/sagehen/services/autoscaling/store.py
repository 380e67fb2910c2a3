"""SQL of Application Auto Scaling."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    select,
    true,
    tuple_,
    update,
)

from sagehen.services.autoscaling.policies.facts import Breach
from sagehen.services.autoscaling.records import (
    ActivityRecord,
    ActivityStatus,
    PolicyRecord,
    ScalableTargetRecord,
    ScheduledActionRecord,
    TargetKey,
)
from sagehen.services.autoscaling.tables import (
    ACTIVITIES,
    POLICIES,
    SCHEDULED_ACTIONS,
    TARGETS,
)
from sagehen.state import rows

__all__ = [
    "activities",
    "activities_in_progress",
    "add_activity",
    "all_targets",
    "count",
    "count_policies",
    "delete_action",
    "delete_policy",
    "delete_target",
    "due_actions",
    "fellow_policies",
    "find_action",
    "find_policy",
    "find_target",
    "forget_ended_actions",
    "forget_old_activities",
    "forget_surplus_activities",
    "listed_actions",
    "listed_policies",
    "listed_targets",
    "next_due_at",
    "policies_of",
    "put_action",
    "put_policy",
    "put_target",
    "record_breach",
    "target_by_arn",
    "target_by_id",
    "targets_of",
    "update_activity",
]

Record = TypeVar("Record", bound=msgspec.Struct)

_T, _P, _S, _A = TARGETS.c, POLICIES.c, SCHEDULED_ACTIONS.c, ACTIVITIES.c


def _columns_of(table: Table, kind: type[msgspec.Struct]) -> list[Any]:
    return [table.c[field] for field in kind.__struct_fields__]


# Built once, for what runs each minute for each alarm: building takes longer than running.
_TARGET_BY_ID = (
    select(*_columns_of(TARGETS, ScalableTargetRecord))
    .where(_T.target_id == bindparam("of_id"))
    .with_for_update()
)
_FELLOW = POLICIES.alias()
_FELLOW_POLICIES = (
    select(*_columns_of(POLICIES, PolicyRecord))
    .join_from(POLICIES, _FELLOW, _FELLOW.c.target_id == _P.target_id)
    .where(_FELLOW.c.policy_id == bindparam("of_id"))
    .order_by(_P.name)
)
_RECORD_BREACH = (
    update(POLICIES)
    .where(_P.policy_id == bindparam("of_id"))
    .values(breach=bindparam("new_breach"))
)
_IN_PROGRESS = (
    select(*_columns_of(ACTIVITIES, ActivityRecord))
    .where(_A.status == ActivityStatus.IN_PROGRESS.value)
    .order_by(_A.number)
)
_IN_PROGRESS_OF = _IN_PROGRESS.where(
    _A.resource_id == bindparam("of_resource"), _A.dimension == bindparam("of_dimension")
)


def _records(
    connection: Connection, statement: Select[Any], kind: type[Record], **values: Any
) -> list[Record]:
    fields = kind.__struct_fields__
    found = connection.execute(statement, values)
    return [msgspec.convert(dict(zip(fields, row, strict=True)), kind) for row in found]


def _put(connection: Connection, table: Table, key: str, record: msgspec.Struct) -> None:
    """Inserts or replaces. The fields' names are the columns', whatever the operations show."""
    values = {name: _plain(getattr(record, name)) for name in record.__struct_fields__}
    rows.put(connection, table, key, values)


def _plain(value: Any) -> Any:
    return value if isinstance(value, dict) else msgspec.to_builtins(value)


# Targets


def find_target(
    connection: Connection, key: TargetKey, lock: bool = False
) -> ScalableTargetRecord | None:
    where = and_(_T.resource_id == key.resource_id, _T.dimension == key.dimension)
    return _one_target(connection, where, lock)


def target_by_id(connection: Connection, target_id: str) -> ScalableTargetRecord | None:
    """Locks the row until the transaction ends."""
    found = _records(connection, _TARGET_BY_ID, ScalableTargetRecord, of_id=target_id)
    return found[0] if found else None


def target_by_arn(connection: Connection, arn: str) -> ScalableTargetRecord | None:
    return _one_target(connection, _T.arn == arn, lock=False)


def _one_target(
    connection: Connection, where: ColumnElement[bool], lock: bool
) -> ScalableTargetRecord | None:
    found = rows.select_records(connection, TARGETS, ScalableTargetRecord, where, lock=lock)
    return found[0] if found else None


def all_targets(connection: Connection) -> list[ScalableTargetRecord]:
    return rows.select_records(connection, TARGETS, ScalableTargetRecord, order=[_T.resource_id])


def targets_of(connection: Connection, prefix: str) -> list[ScalableTargetRecord]:
    """Returns the targets whose resource id begins with `prefix`, in any case."""
    where = func.lower(func.substr(_T.resource_id, 1, len(prefix))) == prefix.lower()
    return rows.select_records(connection, TARGETS, ScalableTargetRecord, where)


def put_target(connection: Connection, record: ScalableTargetRecord) -> None:
    _put(connection, TARGETS, "target_id", record)


def delete_target(connection: Connection, target_id: str) -> None:
    """Deletes a target with its policies and scheduled actions; its activities stay."""
    for table in (POLICIES, SCHEDULED_ACTIONS, TARGETS):
        connection.execute(delete(table).where(table.c.target_id == target_id))


def listed_targets(
    connection: Connection,
    resource_ids: Iterable[str] | None,
    dimension: str | None,
    after: tuple[str, ...] | None,
    limit: int,
) -> list[ScalableTargetRecord]:
    """Ordered by resource id and dimension, both of which `after` names."""
    where = [_T.dimension == dimension if dimension else true()]
    if resource_ids is not None:
        where.append(_T.resource_id.in_(list(resource_ids)))
    if after is not None:
        where.append(tuple_(_T.resource_id, _T.dimension) > after)
    order = [_T.resource_id, _T.dimension]
    return rows.select_records(
        connection, TARGETS, ScalableTargetRecord, *where, order=order, limit=limit
    )


def count(connection: Connection, table: Table, target_id: str | None = None) -> int:
    where = true() if target_id is None else table.c.target_id == target_id
    return connection.scalar(select(func.count()).select_from(table).where(where)) or 0


# Policies


def count_policies(connection: Connection) -> Counter[str]:
    """Returns the number of policies by target id."""
    statement = select(_P.target_id, func.count()).group_by(_P.target_id)
    rows_found = connection.execute(statement).all()
    return Counter({row[0]: row[1] for row in rows_found})


def find_policy(connection: Connection, target_id: str, name: str) -> PolicyRecord | None:
    where = and_(_P.target_id == target_id, _P.name == name)
    found = rows.select_records(connection, POLICIES, PolicyRecord, where)
    return found[0] if found else None


def fellow_policies(connection: Connection, policy_id: str) -> list[PolicyRecord]:
    """Returns all policies of a policy's target, itself too."""
    return _records(connection, _FELLOW_POLICIES, PolicyRecord, of_id=policy_id)


def policies_of(connection: Connection, target_id: str) -> list[PolicyRecord]:
    where = _P.target_id == target_id
    return rows.select_records(connection, POLICIES, PolicyRecord, where, order=[_P.name])


def put_policy(connection: Connection, record: PolicyRecord) -> None:
    _put(connection, POLICIES, "policy_id", record)


def record_breach(connection: Connection, policy_id: str, breach: Breach) -> None:
    values = {"of_id": policy_id, "new_breach": msgspec.to_builtins(breach)}
    connection.execute(_RECORD_BREACH, values)


def delete_policy(connection: Connection, policy_id: str) -> None:
    rows.delete_where(connection, POLICIES, _P.policy_id == policy_id)


def listed_policies(
    connection: Connection,
    key: tuple[str | None, str | None],
    names: Iterable[str] | None,
    after: tuple[str, ...] | None,
    limit: int,
) -> list[tuple[PolicyRecord, TargetKey]]:
    """`key` is resource id and dimension, each None for all; `after` both and a name."""
    return _listed_of_targets(connection, POLICIES, PolicyRecord, key, names, after, limit)


def _listed_of_targets(
    connection: Connection,
    table: Table,
    kind: type[Any],
    key: tuple[str | None, str | None],
    names: Iterable[str] | None,
    after: tuple[str, ...] | None,
    limit: int,
) -> list[tuple[Any, TargetKey]]:
    columns = table.c
    order = [_T.resource_id, _T.dimension, columns.name]
    fields = kind.__struct_fields__
    statement = (
        select(*(columns[field] for field in fields), _T.resource_id, _T.dimension)
        .join_from(table, TARGETS, columns.target_id == _T.target_id)
        .order_by(*order)
        .limit(limit)
    )
    for column, value in zip((_T.resource_id, _T.dimension), key, strict=True):
        if value is not None:
            statement = statement.where(column == value)
    if names is not None:
        statement = statement.where(columns.name.in_(list(names)))
    if after is not None:
        statement = statement.where(tuple_(*order) > after)
    return [
        (_record(kind, fields, row), TargetKey(row[-2], row[-1]))
        for row in connection.execute(statement)
    ]


def _record(kind: type[Any], fields: tuple[str, ...], row: Iterable[Any]) -> Any:
    return msgspec.convert(dict(zip(fields, row, strict=False)), kind)


# Scheduled actions


def find_action(connection: Connection, target_id: str, name: str) -> ScheduledActionRecord | None:
    where = and_(_S.target_id == target_id, _S.name == name)
    found = rows.select_records(connection, SCHEDULED_ACTIONS, ScheduledActionRecord, where)
    return found[0] if found else None


def put_action(connection: Connection, record: ScheduledActionRecord) -> None:
    _put(connection, SCHEDULED_ACTIONS, "action_id", record)


def delete_action(connection: Connection, action_id: str) -> None:
    rows.delete_where(connection, SCHEDULED_ACTIONS, _S.action_id == action_id)


def listed_actions(
    connection: Connection,
    key: tuple[str | None, str | None],
    names: Iterable[str] | None,
    after: tuple[str, ...] | None,
    limit: int,
) -> list[tuple[ScheduledActionRecord, TargetKey]]:
    """See `listed_policies`."""
    return _listed_of_targets(
        connection, SCHEDULED_ACTIONS, ScheduledActionRecord, key, names, after, limit
    )


def due_actions(
    connection: Connection, now: float, lock: bool = False
) -> list[ScheduledActionRecord]:
    """Returns actions that are due, in the order in which they have to run."""
    order = [_S.next_at, _S.created_at, _S.action_id]
    return rows.select_records(
        connection,
        SCHEDULED_ACTIONS,
        ScheduledActionRecord,
        _S.next_at <= now,
        order=order,
        lock=lock,
    )


def next_due_at(connection: Connection) -> float | None:
    earliest: float | None = connection.scalar(select(func.min(_S.next_at)))
    return earliest


def forget_ended_actions(connection: Connection, before: float) -> None:
    """Deletes actions that ran for the last time before that."""
    rows.delete_where(connection, SCHEDULED_ACTIONS, _S.next_at.is_(None), _S.ended_at < before)


# Activities


def add_activity(connection: Connection, record: ActivityRecord) -> None:
    connection.execute(insert(ACTIVITIES).values(msgspec.to_builtins(record)))


def update_activity(connection: Connection, record: ActivityRecord) -> None:
    rows.update_where(connection, ACTIVITIES, record, _A.activity_id == record.activity_id)


def activities(
    connection: Connection,
    key: tuple[str | None, str | None],
    with_not_scaled: bool,
    before: int | None,
    limit: int,
) -> list[tuple[int, ActivityRecord]]:
    """Returns activities with their numbers, newest first; `before` is a number."""
    fields = ActivityRecord.__struct_fields__
    columns = [_A.number, *(_A[field] for field in fields)]
    statement = select(*columns).order_by(_A.number.desc()).limit(limit)
    for column, value in zip((_A.resource_id, _A.dimension), key, strict=True):
        if value is not None:
            statement = statement.where(column == value)
    if not with_not_scaled:
        statement = statement.where(_A.not_scaled.is_(None))
    if before is not None:
        statement = statement.where(_A.number < before)
    return [
        (number, _record(ActivityRecord, fields, record))
        for number, *record in connection.execute(statement)
    ]


def activities_in_progress(
    connection: Connection, key: TargetKey | None = None
) -> list[ActivityRecord]:
    if key is None:
        return _records(connection, _IN_PROGRESS, ActivityRecord)
    of_key = {"of_resource": key.resource_id, "of_dimension": key.dimension}
    return _records(connection, _IN_PROGRESS_OF, ActivityRecord, **of_key)


def forget_old_activities(connection: Connection, before: float) -> None:
    rows.delete_where(connection, ACTIVITIES, _A.started_at < before)


def forget_surplus_activities(connection: Connection, most: int) -> None:
    """Deletes the oldest activities of each target that has more than `most`."""
    group = (_A.resource_id, _A.dimension)
    many = select(*group).group_by(*group).having(func.count(literal_column("*")) > most)
    for resource_id, dimension in connection.execute(many).all():
        same = and_(_A.resource_id == resource_id, _A.dimension == dimension)
        newest = select(_A.number).where(same).order_by(_A.number.desc()).offset(most - 1).limit(1)
        least = connection.scalar(newest)
        rows.delete_where(connection, ACTIVITIES, same, _A.number < least)
