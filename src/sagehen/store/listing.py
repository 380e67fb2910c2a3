"""Pages of named rows: filtered, sorted, continued by a token that says where the last ended."""

import base64
import re
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, Table, and_, or_

from sagehen.errors import Invalid
from sagehen.store.rows import name_key, select_records

__all__ = ["ListQuery", "page"]

Record = TypeVar("Record", bound=msgspec.Struct)

_WORD = re.compile(r"[A-Za-z0-9-]{1,63}")
"""What is in a position besides times: a name or a status."""


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a List operation asks for. Times are seconds since the epoch."""

    limit: int
    sort_column: str = "created_at"
    """`name`, `created_at` or, for endpoints, `status`."""
    descending: bool = True
    token: str | None = None
    name_contains: str | None = None
    created_before: float | None = None
    """Exclusive; `created_after` is inclusive. So SageMaker's reference says."""
    created_after: float | None = None
    modified_before: float | None = None
    """Exclusive, as `modified_after` is."""
    modified_after: float | None = None
    status: str | None = None


class _Position(msgspec.Struct, frozen=True, array_like=True):
    """The last row of a page, and the order it was the last in."""

    sort_column: str
    descending: bool
    value: float | str
    key: str


def page(
    connection: Connection, table: Table, kind: type[Record], query: ListQuery
) -> tuple[list[Record], str | None]:
    """One page of records, and the token of the next page or None at the end.

    Rows that are equal in the sort column are in the order of their names. Rows that come or go
    between two pages shift nothing: the next page starts behind the last row seen.

    Raises:
        Invalid: the token is none of ours, or belongs to another order.
    """
    sort = table.c.key if query.sort_column == "name" else table.c[query.sort_column]
    where = _filters(table, query)
    if query.token is not None:
        where.append(_behind(sort, table.c.key, _read_token(query.token, query)))
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


def _behind(
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
    if not all(_WORD.fullmatch(one) for one in (last.key, last.value) if isinstance(one, str)):
        raise Invalid("Invalid pagination token.")
    same_order = (last.sort_column, last.descending) == (query.sort_column, query.descending)
    same_type = isinstance(last.value, float) == (query.sort_column == "created_at")
    if not (same_order and same_type):
        raise Invalid("Invalid pagination token: it belongs to another order.")
    return last
