"""SQL of alarms."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, bindparam, func, insert, select, update

from sagehen.services.monitoring.alarms.records import AlarmKind, AlarmRecord, AlarmState
from sagehen.services.monitoring.alarms.tables import ALARM_CHILDREN, ALARMS
from sagehen.state import rows
from sagehen.state.database import notify

__all__ = [
    "ALARMS_CHANGED",
    "Parent",
    "all_of_kind",
    "children_of_all",
    "count",
    "delete",
    "existing",
    "get",
    "get_some",
    "page",
    "parents_of",
    "put",
    "put_state",
    "set_actions_enabled",
    "set_children",
    "suppressed_by_period",
    "suppressor_of",
]

ALARMS_CHANGED = "alarms"
"""Database.listen's channel. The payload is the name of a metric alarm to evaluate at once, or
empty for another change that the loop must know."""

_CHUNK_SIZE = 500
"""values per statement, which databases limit"""
_KINDS = tuple(AlarmKind)
# Built once: building takes longer than running, and many alarms are written each minute.
_STATE_COLUMNS = (
    "state",
    "reason",
    "reason_data",
    "updated_at",
    "transitioned_at",
    "evaluation_state",
    "policies_invoked_at",
    "policy_outcome",
    "suppressed_by",
    "suppressed_until",
)
_UPDATE_STATE = (
    update(ALARMS)
    .where(ALARMS.c.name == bindparam("of_name"))
    .values({name: bindparam(f"new_{name}") for name in _STATE_COLUMNS})
)


def get(connection: Connection, name: str, lock: bool = False) -> AlarmRecord | None:
    found = rows.select_records(connection, ALARMS, AlarmRecord, ALARMS.c.name == name, lock=lock)
    return found[0] if found else None


def get_some(
    connection: Connection, names: Collection[str], lock: bool = False
) -> dict[str, AlarmRecord]:
    """Leaves out names without an alarm."""
    found: dict[str, AlarmRecord] = {}
    ordered = sorted(names)  # Lock in one order to avoid deadlocks.
    for start in range(0, len(ordered), _CHUNK_SIZE):
        some = ALARMS.c.name.in_(ordered[start : start + _CHUNK_SIZE])
        order = [ALARMS.c.name]
        for record in rows.select_records(
            connection, ALARMS, AlarmRecord, some, order=order, lock=lock
        ):
            found[record.name] = record
    return found


def existing(connection: Connection, names: Collection[str]) -> set[str]:
    statement = select(ALARMS.c.name).where(ALARMS.c.name.in_(list(names)))
    return set(connection.scalars(statement))


def all_of_kind(connection: Connection, kind: AlarmKind) -> list[AlarmRecord]:
    return rows.select_records(
        connection, ALARMS, AlarmRecord, ALARMS.c.kind == kind, order=[ALARMS.c.name]
    )


def page(
    connection: Connection,
    after: str,
    limit: int,
    *,
    kinds: Sequence[AlarmKind] = _KINDS,
    names: Collection[str] | None = None,
    prefix: str = "",
    state: AlarmState | None = None,
) -> list[AlarmRecord]:
    """Returns alarms in the order of their names.

    Args:
        names: only these, at most some hundreds; None for all.
    """
    where: list[ColumnElement[bool]] = [ALARMS.c.name > after, ALARMS.c.kind.in_(kinds)]
    if names is not None:
        where.append(ALARMS.c.name.in_(list(names)))
    if prefix:
        # LIKE is blind to case in SQLite, and `substr` uses no index.
        where += [ALARMS.c.name >= prefix, func.substr(ALARMS.c.name, 1, len(prefix)) == prefix]
    if state is not None:
        where.append(ALARMS.c.state == state)
    return rows.select_records(
        connection, ALARMS, AlarmRecord, *where, order=[ALARMS.c.name], limit=limit
    )


def count(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(ALARMS)) or 0


def put(connection: Connection, record: AlarmRecord) -> None:
    """Writes the record, in the place of one of that name."""
    rows.put(connection, ALARMS, "name", msgspec.to_builtins(record))


def put_state(connection: Connection, record: AlarmRecord) -> None:
    """Writes what is not of the definition."""
    values = {f"new_{name}": getattr(record, name) for name in _STATE_COLUMNS}
    connection.execute(_UPDATE_STATE, {"of_name": record.name, **values})
    if record.suppressed_until is not None:
        notify(connection, ALARMS_CHANGED)


def set_actions_enabled(connection: Connection, names: Collection[str], enabled: bool) -> None:
    """Unknown names are no error."""
    statement = update(ALARMS).where(ALARMS.c.name.in_(list(names)))
    connection.execute(statement.values(actions_enabled=enabled))


def delete(connection: Connection, names: Collection[str]) -> None:
    """Deletes alarms and what their own rules name; rules that name them stay."""
    rows.delete_where(connection, ALARMS, ALARMS.c.name.in_(list(names)))
    rows.delete_where(connection, ALARM_CHILDREN, ALARM_CHILDREN.c.parent.in_(list(names)))


def suppressed_by_period(connection: Connection) -> list[AlarmRecord]:
    """Returns the composite alarms with a period that ends."""
    where = ALARMS.c.suppressed_until.is_not(None)
    return rows.select_records(connection, ALARMS, AlarmRecord, where, order=[ALARMS.c.name])


def set_children(
    connection: Connection, parent: str, children: Iterable[str], suppressor: str | None
) -> None:
    """Replaces what the parent names."""
    rows.delete_where(connection, ALARM_CHILDREN, ALARM_CHILDREN.c.parent == parent)
    links = [(child, False) for child in sorted(set(children))]
    if suppressor is not None:
        links.append((suppressor, True))
    if links:
        connection.execute(
            insert(ALARM_CHILDREN),
            [
                {"parent": parent, "child": child, "is_suppressor": is_suppressor}
                for child, is_suppressor in links
            ],
        )


def children_of_all(connection: Connection, parents: Collection[str]) -> set[str]:
    """Returns the alarms that the rules of `parents` name."""
    found: set[str] = set()
    ordered = sorted(parents)
    for start in range(0, len(ordered), _CHUNK_SIZE):
        some = ALARM_CHILDREN.c.parent.in_(ordered[start : start + _CHUNK_SIZE])
        statement = select(ALARM_CHILDREN.c.child).where(some, ~ALARM_CHILDREN.c.is_suppressor)
        found.update(connection.scalars(statement))
    return found


def suppressor_of(connection: Connection, parent: str) -> str | None:
    statement = select(ALARM_CHILDREN.c.child).where(
        ALARM_CHILDREN.c.parent == parent, ALARM_CHILDREN.c.is_suppressor
    )
    return connection.scalar(statement)


class Parent(NamedTuple):
    name: str
    child: str
    is_suppressor: bool
    """the child is the parent's suppressor, and not in its rule"""


def parents_of(connection: Connection, children: Collection[str]) -> list[Parent]:
    """Returns the composite alarms that name any of `children`."""
    columns = (ALARM_CHILDREN.c.parent, ALARM_CHILDREN.c.child, ALARM_CHILDREN.c.is_suppressor)
    found: list[Parent] = []
    ordered = sorted(children)
    for start in range(0, len(ordered), _CHUNK_SIZE):
        some = ALARM_CHILDREN.c.child.in_(ordered[start : start + _CHUNK_SIZE])
        statement = select(*columns).where(some).order_by(*columns)
        found += (Parent(*row) for row in connection.execute(statement))
    return found
