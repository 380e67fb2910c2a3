"""The stacks: one row each, from the first apply to the end of delete."""

from typing import Any

from sqlalchemy import JSON, Column, Connection, Double, Integer, String, Table, select

from sagehen.domain.stacks import StackRecord
from sagehen.store import rows
from sagehen.store.tables import METADATA

__all__ = ["STACKS", "delete", "get", "insert", "list_page", "update"]

STACKS = Table(
    "stacks",
    METADATA,
    Column("name", String(128), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("modified_at", Double, nullable=False),
    Column("content", JSON(none_as_null=True), nullable=False),
    Column("claim", JSON(none_as_null=True)),
)


def insert(connection: Connection, record: StackRecord) -> bool:
    """Add a stack; False where there is one of its name."""
    return rows.insert_new(connection, STACKS, record)


def get(connection: Connection, name: str, lock: bool = False) -> StackRecord | None:
    """The stack of that name; with `lock`, nobody else writes it until this transaction ends."""
    found = rows.select_records(connection, STACKS, StackRecord, STACKS.c.name == name, lock=lock)
    return found[0] if found else None


def update(connection: Connection, record: StackRecord) -> None:
    """Write all of `record`; read what you change by `get` with `lock`."""
    rows.update_where(connection, STACKS, record, STACKS.c.name == record.name)


def delete(connection: Connection, name: str) -> None:
    rows.delete_where(connection, STACKS, STACKS.c.name == name)


def list_page(connection: Connection, after: str, limit: int) -> list[dict[str, Any]]:
    """Stacks by name behind `after`, without their content."""
    columns = [column for column in STACKS.c if column.name != "content"]
    statement = select(*columns).where(STACKS.c.name > after).order_by(STACKS.c.name).limit(limit)
    return [dict(row) for row in connection.execute(statement).mappings()]
