"""Shared helpers of the tables: rows to records and back, conflict-free inserts, and
the MetaData."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    MetaData,
    Table,
    delete,
    select,
    update,
)

from sagehen.base.errors import AlreadyExists

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

__all__ = [
    "METADATA",
    "SEQUENCE",
    "Upsert",
    "delete_where",
    "insert_named",
    "insert_new",
    "inserts",
    "name_key",
    "put",
    "select_records",
    "update_where",
    "upsert",
    "upsert_for",
]

# SQLite numbers rows only for INTEGER, 64 bits there, and reuses numbers without autoincrement.
SEQUENCE = BigInteger().with_variant(Integer, "sqlite")

Record = TypeVar("Record", bound=msgspec.Struct)
Upsert: TypeAlias = "sqlite.Insert | postgresql.Insert"


def name_key(name: str) -> str:
    """SageMaker's names are unique regardless of case."""
    return name.lower()


def select_records(
    connection: Connection,
    table: Table,
    kind: type[Record],
    *where: ColumnElement[bool],
    order: Sequence[ColumnElement[Any]] = (),
    limit: int | None = None,
    lock: bool = False,
) -> list[Record]:
    """The fields of `kind` name the columns. With `lock`, other writers wait, as SQLite's always
    do."""
    fields = kind.__struct_fields__
    statement = (
        select(*(table.c[field] for field in fields)).where(*where).order_by(*order).limit(limit)
    )
    if lock:
        statement = statement.with_for_update()
    rows = connection.execute(statement)
    return [msgspec.convert(dict(zip(fields, row, strict=True)), kind) for row in rows]


def upsert(connection: Connection, table: Table) -> Upsert:
    """Uses the connection's dialect, for `ON CONFLICT`."""
    return upsert_for(connection.dialect.name, table)


def upsert_for(dialect: str, table: Table) -> Upsert:
    # Each dialect imports all its drivers.
    if dialect == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


def put(connection: Connection, table: Table, key: str, values: Mapping[str, Any]) -> None:
    """Inserts a row, or overwrites the one with the same value in the column `key`."""
    statement = _put_statement(connection.dialect.name, table, key, tuple(values))
    connection.execute(statement, dict(values))


@cache
def _put_statement(dialect: str, table: Table, key: str, columns: tuple[str, ...]) -> Upsert:
    # Built once: building takes longer than running.
    statement = upsert_for(dialect, table)
    changed = {name: statement.excluded[name] for name in columns if name != key}
    return statement.on_conflict_do_update(index_elements=[table.c[key]], set_=changed)


def insert_new(
    connection: Connection, table: Table, record: msgspec.Struct, **columns: Any
) -> bool:
    """Inserts `record` and further `columns`; returns False where the primary key is taken.

    The transaction stays usable, unlike after a constraint error in PostgreSQL.
    """
    statement = upsert(connection, table).values(**msgspec.to_builtins(record), **columns)
    return inserts(connection, statement.on_conflict_do_nothing())


def inserts(connection: Connection, statement: Upsert) -> bool:
    """Returns False where a conflict clause skipped the row."""
    # SQLAlchemy does not count inserted rows by default.
    options = {"preserve_rowcount": True}
    return connection.execute(statement, execution_options=options).rowcount == 1


def insert_named(connection: Connection, table: Table, record: msgspec.Struct, name: str) -> None:
    """Raises AlreadyExists if the name is taken in any case."""
    if not insert_new(connection, table, record, key=name_key(name)):
        raise AlreadyExists(f"There is a {table.name} row named {name!r} already.")


def update_where(
    connection: Connection, table: Table, record: msgspec.Struct, where: ColumnElement[bool]
) -> bool:
    """Overwrites a row; returns False where none matches."""
    statement = update(table).where(where).values(**msgspec.to_builtins(record))
    return connection.execute(statement).rowcount > 0


def delete_where(connection: Connection, table: Table, *where: ColumnElement[bool]) -> bool:
    return connection.execute(delete(table).where(*where)).rowcount > 0


METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)
