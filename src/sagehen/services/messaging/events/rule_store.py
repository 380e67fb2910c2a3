"""SQL of EventBridge's rules."""

import msgspec
from sqlalchemy import Column, Connection, Double, String, Table, Text, func, select, update

from sagehen.services.messaging.events.records import ENABLED, RuleRecord
from sagehen.state import rows
from sagehen.state.rows import METADATA

__all__ = ["RULES", "count", "delete", "enabled_patterns", "get", "page", "put", "set_state"]

RULES = Table(
    "event_rules",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("arn", String(256), nullable=False),
    Column("state", String(16), nullable=False, index=True),
    Column("event_pattern", Text, nullable=False),
    Column("description", Text),
    Column("role_arn", Text),
    Column("created_at", Double, nullable=False),
)
_C = RULES.c
# Built once, as it runs for every event.
_PATTERNS = select(_C.name, _C.event_pattern).where(_C.state == ENABLED).order_by(_C.name)


def put(connection: Connection, record: RuleRecord) -> None:
    values = msgspec.to_builtins(record)
    statement = rows.upsert(connection, RULES).values(**values)
    del values["name"], values["created_at"]
    connection.execute(statement.on_conflict_do_update(index_elements=[_C.name], set_=values))


def get(connection: Connection, name: str, lock: bool = False) -> RuleRecord | None:
    records = rows.select_records(connection, RULES, RuleRecord, _C.name == name, lock=lock)
    return records[0] if records else None


def enabled_patterns(connection: Connection) -> list[tuple[str, str]]:
    return [(name, pattern) for name, pattern in connection.execute(_PATTERNS)]


def page(connection: Connection, prefix: str, after: str, limit: int) -> list[RuleRecord]:
    # Not LIKE, which ignores case in SQLite.
    has_prefix = func.substr(_C.name, 1, len(prefix)) == prefix
    where = has_prefix & (_C.name > after)
    return rows.select_records(connection, RULES, RuleRecord, where, order=[_C.name], limit=limit)


def count(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(RULES)) or 0


def set_state(connection: Connection, name: str, state: str) -> bool:
    """Returns False if there is none."""
    statement = update(RULES).where(_C.name == name).values(state=state)
    return connection.execute(statement).rowcount > 0


def delete(connection: Connection, name: str) -> bool:
    """Deletes a rule without targets; returns False if there is none."""
    return rows.delete_where(connection, RULES, _C.name == name)
