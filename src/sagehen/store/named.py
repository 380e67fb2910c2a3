"""What has a name of its own, a row each: looked up whatever the name's case, listed in pages."""

from typing import Generic, TypeVar

import msgspec
from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    Connection,
    Double,
    String,
    Table,
    bindparam,
    select,
)

from sagehen.domain.named import NamedRecord
from sagehen.store import rows
from sagehen.store.listing import ListQuery, page
from sagehen.store.tables import METADATA

__all__ = ["Named", "table_of_definitions"]

Record = TypeVar("Record", bound=NamedRecord)


def table_of_definitions(name: str) -> Table:
    """The table of what is kept as it was given."""
    return Table(
        name,
        METADATA,
        Column("key", String(63), primary_key=True),
        Column("name", String(63), nullable=False),
        Column("arn", String(256), nullable=False),
        Column("created_at", Double, nullable=False, index=True),
        Column("definition", JSON(none_as_null=True), nullable=False),
    )


class Named(Generic[Record]):
    """The records of one kind. `table` has a column `key`, and one for each field of `kind`."""

    def __init__(self, table: Table, kind: type[Record]) -> None:
        self.table = table
        self.kind = kind
        # Made once: to make it takes longer than to run it.
        columns = (table.c[name] for name in kind.__struct_fields__)
        self._get = select(*columns).where(table.c.key == bindparam("of_key"))
        self._get_for_update = self._get.with_for_update()

    def insert(self, connection: Connection, record: Record) -> None:
        """Add a record; raises AlreadyExists."""
        rows.insert_named(connection, self.table, record, record.name)

    def get(self, connection: Connection, name: str) -> Record | None:
        """The record of that name, whatever its case."""
        return self._find(connection, name, lock=False)

    def get_for_update(self, connection: Connection, name: str) -> Record | None:
        """As `get`, and nobody else writes it until this transaction ends."""
        return self._find(connection, name, lock=True)

    def all(self, connection: Connection) -> list[Record]:
        """Every record, by name."""
        return rows.select_records(connection, self.table, self.kind, order=[self.table.c.key])

    def update(self, connection: Connection, record: Record) -> bool:
        """Write all of `record` over what is stored; False where it is gone.

        Hazard: read what you change in the same transaction, by `get_for_update`, or a change
        made in between is lost.
        """
        return rows.update_where(connection, self.table, record, self._is(record.name))

    def delete(self, connection: Connection, name: str) -> bool:
        """Drop the record of that name; False where there is none."""
        return rows.delete_where(connection, self.table, self._is(name))

    def list_page(
        self, connection: Connection, query: ListQuery
    ) -> tuple[list[Record], str | None]:
        """One page and the next page's token; raises Invalid on a bad token."""
        return page(connection, self.table, self.kind, query)

    def _find(self, connection: Connection, name: str, lock: bool) -> Record | None:
        statement = self._get_for_update if lock else self._get
        row = connection.execute(statement, {"of_key": rows.name_key(name)}).first()
        if row is None:
            return None
        fields = self.kind.__struct_fields__
        return msgspec.convert(dict(zip(fields, row, strict=True)), self.kind)

    def _is(self, name: str) -> ColumnElement[bool]:
        return self.table.c.key == rows.name_key(name)
