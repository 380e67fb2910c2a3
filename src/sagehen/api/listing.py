"""What the List operations share: their parameters, and how a page is answered."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import Connection

from sagehen.api.call import Call
from sagehen.errors import Invalid
from sagehen.store.listing import ListQuery
from sagehen.wire.faults import AwsError

__all__ = ["as_time", "list_query", "read_page"]

Record = TypeVar("Record")
ReadPage = Callable[[Connection, ListQuery], tuple[list[Record], str | None]]

_DEFAULT_PAGE_SIZE = 10
_SORT_COLUMNS = {"Name": "name", "CreationTime": "created_at", "Status": "status"}


def list_query(params: dict[str, Any], order: str = "Descending") -> ListQuery:
    """The query that a List operation's parameters ask for, with SageMaker's defaults.

    `order` is its SortOrder where none is given.
    """
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
    call: Call,
    params: dict[str, Any],
    read: ReadPage[Record],
    member: str,
    summarize: Callable[[Record], dict[str, Any]],
    order: str = "Descending",
) -> dict[str, Any]:
    """A List operation's answer: `member` holds the summaries of one page; `order` is
    the SortOrder where none is given.

    Raises:
        AwsError: NextToken is none of ours.
    """
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
    """A stored time, as output members carry it."""
    return datetime.fromtimestamp(seconds, UTC)


def _as_seconds(value: datetime | float | None) -> float | None:
    return value.timestamp() if isinstance(value, datetime) else value
