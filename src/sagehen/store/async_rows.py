"""Asynchronous requests as rows and back, and the counts of each endpoint's queue."""

import functools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import Connection, RowMapping

from sagehen.domain.asynchronous import AsyncRequest, AsyncState, Outcome, Output, QueuedRequest
from sagehen.store.async_tables import ENDPOINTS
from sagehen.store.rows import Upsert, upsert_for

__all__ = ["count", "read_row", "row_of"]

_DIRECT = (
    "request_id",
    "inference_id",
    "endpoint_name",
    "received_at",
    "expires_at",
    "timeout_seconds",
    "input_location",
    "content_type",
    "accept",
    "custom_attributes",
)
_STANDING = (
    "sequence",
    "attempt",
    "lost",
    "reclaimed",
    "redrives",
    "end_at",
    "lease_until",
    "started_at",
    "ended_at",
)


class _Notices(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who is told of the end of a request."""

    success: str | None = None
    error: str | None = None
    include: tuple[str, ...] = ()


_NOBODY = _Notices()


def row_of(request: AsyncRequest) -> dict[str, Any]:
    """The columns of a request that was just accepted."""
    output = request.output
    notices = _Notices(output.success_topic, output.error_topic, output.include_response_in)
    return {name: getattr(request, name) for name in _DIRECT} | {
        "location": output.location,
        "failure_location": output.failure_location,
        "notices": None if notices == _NOBODY else msgspec.json.encode(notices).decode(),
        "state": AsyncState.QUEUED.value,
        "attempt": 0,
        "lost": 0,
        "reclaimed": 0,
        "redrives": 0,
        "end_at": request.expires_at,
    }


def read_row(row: RowMapping) -> QueuedRequest:
    notices = msgspec.json.decode(row["notices"], type=_Notices) if row["notices"] else _NOBODY
    output = Output(
        location=row["location"],
        failure_location=row["failure_location"],
        success_topic=notices.success,
        error_topic=notices.error,
        include_response_in=notices.include,
    )
    outcome = msgspec.json.decode(row["outcome"], type=Outcome) if row["outcome"] else None
    return QueuedRequest(
        request=AsyncRequest(output=output, **{name: row[name] for name in _DIRECT}),
        state=AsyncState(row["state"]),
        cancel_requested=row["cancel_requested_at"] is not None,
        outcome=outcome,
        **{name: row[name] for name in _STANDING},
    )


def count(
    connection: Connection, names: Iterable[str], *, queued: int = 0, leased: int = 0
) -> None:
    """Add to the counts of each endpoint, once for each time that its name comes."""
    # In the order of their names, so that no two transactions wait for each other's row.
    changes = [
        {"endpoint_name": name, "queued": queued * times, "leased": leased * times}
        for name, times in sorted(Counter(names).items())
    ]
    if changes:
        connection.execute(_counting(connection.dialect.name), changes)


@functools.cache  # To make such a statement takes ten times as long as to run it.
def _counting(dialect: str) -> Upsert:
    statement = upsert_for(dialect, ENDPOINTS)
    columns, more = ENDPOINTS.c, statement.excluded
    return statement.on_conflict_do_update(
        index_elements=[columns.endpoint_name],
        set_={"queued": columns.queued + more.queued, "leased": columns.leased + more.leased},
    )
