"""Tables of named records, and the pages of List operations."""

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    Connection,
    Double,
    String,
    Table,
    and_,
    bindparam,
    or_,
    select,
)

from sagehen.base.errors import Invalid
from sagehen.frame.context import RequestContext
from sagehen.state import rows
from sagehen.state.rows import METADATA, name_key, select_records
from sagehen.wire.errors import AwsError

__all__ = [
    "ListQuery",
    "NamedRecord",
    "NamedTable",
    "as_time",
    "list_query",
    "page",
    "read_page",
    "table_of_definitions",
]


class NamedRecord(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    arn: str
    created_at: float
    """seconds since the epoch, like every `_at`"""


ListedRecord = TypeVar("ListedRecord", bound=msgspec.Struct)

_WORD = re.compile(r"[A-Za-z0-9-]{1,63}")


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a List operation; times are seconds since the epoch."""

    limit: int
    sort_column: str = "created_at"
    """`name`, `created_at` or, for endpoints, `status`"""
    descending: bool = True
    token: str | None = None
    name_contains: str | None = None
    created_before: float | None = None
    """exclusive, while `created_after` is inclusive, as in SageMaker's reference"""
    created_after: float | None = None
    modified_before: float | None = None
    """exclusive, like `modified_after`"""
    modified_after: float | None = None
    status: str | None = None


class _Position(msgspec.Struct, frozen=True, array_like=True):
    sort_column: str
    descending: bool
    value: float | str
    key: str


def page(
    connection: Connection, table: Table, kind: type[ListedRecord], query: ListQuery
) -> tuple[list[ListedRecord], str | None]:
    """Returns a page and the next page's token, if any. Ties are sorted by name; changes between
    pages shift nothing.

    Raises Invalid for a foreign token or one of another order.
    """
    sort = table.c.key if query.sort_column == "name" else table.c[query.sort_column]
    where = _filters(table, query)
    if query.token is not None:
        where.append(_after(sort, table.c.key, _read_token(query.token, query)))
    order = [column.desc() if query.descending else column.asc() for column in (sort, table.c.key)]
    records = select_records(connection, table, kind, *where, order=order, limit=query.limit + 1)
    if len(records) <= query.limit:
        return records, None
    records = records[: query.limit]
    return records, _write_token(records[-1], query)


def _filters(table: Table, query: ListQuery) -> list[ColumnElement[bool]]:
    columns = table.c
    where: list[ColumnElement[bool]] = []
    if query.name_contains is not None:
        where.append(columns.key.contains(name_key(query.name_contains), autoescape=True))
    if query.created_before is not None:
        where.append(columns.created_at < query.created_before)
    if query.created_after is not None:
        where.append(columns.created_at >= query.created_after)
    if query.modified_before is not None:
        where.append(columns.modified_at < query.modified_before)
    if query.modified_after is not None:
        where.append(columns.modified_at > query.modified_after)
    if query.status is not None:
        where.append(columns.status == query.status)
    return where


def _after(
    sort: ColumnElement[Any], key: ColumnElement[Any], last: _Position
) -> ColumnElement[bool]:
    if last.descending:
        return or_(sort < last.value, and_(sort == last.value, key < last.key))
    return or_(sort > last.value, and_(sort == last.value, key > last.key))


def _write_token(record: Any, query: ListQuery) -> str:
    value = getattr(record, query.sort_column)
    if query.sort_column == "name":
        value = name_key(value)
    last = _Position(query.sort_column, query.descending, value, name_key(record.name))
    return base64.urlsafe_b64encode(msgspec.json.encode(last)).decode()


def _read_token(token: str, query: ListQuery) -> _Position:
    try:
        last = msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Position)
    except ValueError as error:
        raise Invalid("Invalid pagination token.") from error
    if not all(_WORD.fullmatch(text) for text in (last.key, last.value) if isinstance(text, str)):
        raise Invalid("Invalid pagination token.")
    same_order = (last.sort_column, last.descending) == (query.sort_column, query.descending)
    same_type = isinstance(last.value, float) == (query.sort_column == "created_at")
    if not (same_order and same_type):
        raise Invalid("Invalid pagination token: it belongs to another order.")
    return last


Record = TypeVar("Record", bound=NamedRecord)


def table_of_definitions(name: str) -> Table:
    return Table(
        name,
        METADATA,
        Column("key", String(63), primary_key=True),
        Column("name", String(63), nullable=False),
        Column("arn", String(256), nullable=False),
        Column("created_at", Double, nullable=False, index=True),
        Column("definition", JSON(none_as_null=True), nullable=False),
    )


class NamedTable(Generic[Record]):
    """The records of one kind. `table` has a column `key` besides the fields of `kind`."""

    def __init__(self, table: Table, kind: type[Record]) -> None:
        self.table = table
        self.kind = kind
        # Built once: building takes longer than running.
        columns = (table.c[name] for name in kind.__struct_fields__)
        self._get = select(*columns).where(table.c.key == bindparam("of_key"))
        self._get_for_update = self._get.with_for_update()

    def insert(self, connection: Connection, record: Record) -> None:
        """Raises AlreadyExists."""
        rows.insert_named(connection, self.table, record, record.name)

    def get(self, connection: Connection, name: str) -> Record | None:
        return self._find(connection, name, lock=False)

    def get_for_update(self, connection: Connection, name: str) -> Record | None:
        """Like `get`, and locks the row until the transaction ends."""
        return self._find(connection, name, lock=True)

    def all(self, connection: Connection) -> list[Record]:
        return rows.select_records(connection, self.table, self.kind, order=[self.table.c.key])

    def update(self, connection: Connection, record: Record) -> bool:
        """Returns False where the record is gone.

        Hazard: read with `get_for_update` in the same transaction, or a concurrent change is lost.
        """
        return rows.update_where(connection, self.table, record, self._is(record.name))

    def delete(self, connection: Connection, name: str) -> bool:
        return rows.delete_where(connection, self.table, self._is(name))

    def list_page(
        self, connection: Connection, query: ListQuery
    ) -> tuple[list[Record], str | None]:
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


Listed = TypeVar("Listed")
ReadPage = Callable[[Connection, ListQuery], tuple[list[Listed], str | None]]

_DEFAULT_PAGE_SIZE = 10
_SORT_COLUMNS = {"Name": "name", "CreationTime": "created_at", "Status": "status"}


def list_query(params: dict[str, Any], order: str = "Descending") -> ListQuery:
    """Takes SortOrder's default as `order`."""
    return ListQuery(
        limit=params.get("MaxResults", _DEFAULT_PAGE_SIZE),
        sort_column=_SORT_COLUMNS[params.get("SortBy", "CreationTime")],
        descending=params.get("SortOrder", order) == "Descending",
        token=params.get("NextToken"),
        name_contains=params.get("NameContains"),
        created_before=_as_seconds(params.get("CreationTimeBefore")),
        created_after=_as_seconds(params.get("CreationTimeAfter")),
        modified_before=_as_seconds(params.get("LastModifiedTimeBefore")),
        modified_after=_as_seconds(params.get("LastModifiedTimeAfter")),
        status=params.get("StatusEquals"),
    )


def read_page(
    call: RequestContext,
    params: dict[str, Any],
    read: ReadPage[Listed],
    member: str,
    summarize: Callable[[Listed], dict[str, Any]],
    order: str = "Descending",
) -> dict[str, Any]:
    """Puts summaries into `member`; `order` is SortOrder's default. Raises AwsError on a bad
    NextToken."""
    with call.database.read() as connection:
        try:
            records, token = read(connection, list_query(params, order))
        except Invalid as error:
            raise AwsError("ValidationException", str(error), 400) from error
    answer: dict[str, Any] = {member: [summarize(record) for record in records]}
    if token is not None:
        answer["NextToken"] = token
    return answer


def as_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _as_seconds(value: datetime | float | None) -> float | None:
    return value.timestamp() if isinstance(value, datetime) else value
