"""The tables of asynchronous requests.

A queue's indexes hold only the rows searched by them, so that the queue's length costs nothing.
"""

import functools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    RowMapping,
    String,
    Table,
    Text,
    literal_column,
    text,
)

from sagehen.services.sagemaker.async_inference.records import (
    AsyncOutcome,
    AsyncRequest,
    AsyncState,
    OutputTarget,
    QueuedRequest,
)
from sagehen.state.rows import METADATA, Upsert, upsert_for

__all__ = [
    "BODIES",
    "ENDPOINTS",
    "FAILED",
    "LEASED",
    "QUEUED",
    "REQUESTS",
    "count",
    "read_row",
    "row_of",
]

# Literals, because a partial index serves only statements that contain its condition.
QUEUED: ColumnElement[str] = literal_column("'QUEUED'")
LEASED: ColumnElement[str] = literal_column("'LEASED'")
FAILED: tuple[ColumnElement[str], ...] = (
    literal_column("'FAILED'"),
    literal_column("'EXPIRED'"),
    literal_column("'CANCELLED'"),
)

_Sequence = BigInteger().with_variant(Integer, "sqlite")


def _partial(name: str, *columns: str, where: str) -> Index:
    # PostgreSQL's are made by the migrations; naming them here would import its drivers at every
    # start.
    return Index(name, *columns, sqlite_where=text(where))


REQUESTS = Table(
    "async_requests",
    METADATA,
    Column("sequence", _Sequence, primary_key=True, autoincrement=True),
    Column("request_id", String(36), nullable=False),
    Column("inference_id", String(64), nullable=False),
    Column("endpoint_name", String(63), nullable=False),
    Column("received_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("timeout_seconds", Double, nullable=False),
    Column("location", Text, nullable=False),
    Column("failure_location", Text),
    # JSON; null without topics.
    Column("notices", Text),
    Column("input_location", Text),
    Column("content_type", Text),
    Column("accept", Text),
    Column("custom_attributes", Text),
    Column("state", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("lost", Integer, nullable=False),
    Column("reclaimed", Integer, nullable=False),
    Column("redrives", Integer, nullable=False),
    # When a queued request is ended without being sent; 0 once cancelled.
    Column("end_at", Double, nullable=False),
    Column("cancel_requested_at", Double),
    Column("worker", String(512)),
    Column("lease_until", Double),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("outcome", Text),
    Index("ix_async_requests_inference", "endpoint_name", "inference_id"),
    _partial("ix_async_requests_queued", "endpoint_name", "sequence", where="state = 'QUEUED'"),
    _partial("ix_async_requests_end_at", "end_at", where="state = 'QUEUED'"),
    _partial("ix_async_requests_leased", "lease_until", where="state = 'LEASED'"),
    _partial(
        "ix_async_requests_failed",
        "endpoint_name",
        "sequence",
        where="state IN ('FAILED', 'EXPIRED', 'CANCELLED')",
    ),
    _partial("ix_async_requests_ended_at", "ended_at", where="ended_at IS NOT NULL"),
    # Numbers are never reused, even of deleted rows.
    sqlite_autoincrement=True,
)
BODIES = Table(
    "async_bodies",
    METADATA,
    Column("sequence", _Sequence, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)
ENDPOINTS = Table(
    "async_endpoints",
    METADATA,
    # In its own case.
    Column("endpoint_name", String(63), primary_key=True),
    Column("queued", BigInteger, nullable=False, server_default="0"),
    Column("leased", BigInteger, nullable=False, server_default="0"),
    Column("mode", String(16), nullable=False, server_default="OPEN"),
    Column("abandoned_to", BigInteger, nullable=False, server_default="0"),
)


_REQUEST_COLUMNS = (
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
_QUEUE_COLUMNS = (
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
    success: str | None = None
    error: str | None = None
    include: tuple[str, ...] = ()


_NO_NOTICES = _Notices()


def row_of(request: AsyncRequest) -> dict[str, Any]:
    output = request.output
    notices = _Notices(output.success_topic, output.error_topic, output.include_response_in)
    return {name: getattr(request, name) for name in _REQUEST_COLUMNS} | {
        "location": output.location,
        "failure_location": output.failure_location,
        "notices": None if notices == _NO_NOTICES else msgspec.json.encode(notices).decode(),
        "state": AsyncState.QUEUED.value,
        "attempt": 0,
        "lost": 0,
        "reclaimed": 0,
        "redrives": 0,
        "end_at": request.expires_at,
    }


def read_row(row: RowMapping) -> QueuedRequest:
    notices = msgspec.json.decode(row["notices"], type=_Notices) if row["notices"] else _NO_NOTICES
    output = OutputTarget(
        location=row["location"],
        failure_location=row["failure_location"],
        success_topic=notices.success,
        error_topic=notices.error,
        include_response_in=notices.include,
    )
    outcome = msgspec.json.decode(row["outcome"], type=AsyncOutcome) if row["outcome"] else None
    return QueuedRequest(
        request=AsyncRequest(output=output, **{name: row[name] for name in _REQUEST_COLUMNS}),
        state=AsyncState(row["state"]),
        cancel_requested=row["cancel_requested_at"] is not None,
        outcome=outcome,
        **{name: row[name] for name in _QUEUE_COLUMNS},
    )


def count(
    connection: Connection, names: Iterable[str], *, queued: int = 0, leased: int = 0
) -> None:
    """Adds to the counts of each endpoint, once for each time its name comes."""
    # Sorted, so that no two transactions wait for each other's row.
    changes = [
        {"endpoint_name": name, "queued": queued * times, "leased": leased * times}
        for name, times in sorted(Counter(names).items())
    ]
    if changes:
        connection.execute(_counting(connection.dialect.name), changes)


@functools.cache  # Making it takes ten times as long as running it.
def _counting(dialect: str) -> Upsert:
    statement = upsert_for(dialect, ENDPOINTS)
    columns, more = ENDPOINTS.c, statement.excluded
    return statement.on_conflict_do_update(
        index_elements=[columns.endpoint_name],
        set_={"queued": columns.queued + more.queued, "leased": columns.leased + more.leased},
    )
