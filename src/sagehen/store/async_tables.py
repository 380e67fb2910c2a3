"""The tables of the queue of asynchronous requests.

Every index holds only the rows that are looked for by it, so that what is done to one end of the
queue costs the same however long it is.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Double,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    literal_column,
    text,
)

from sagehen.store.tables import METADATA

__all__ = ["BODIES", "ENDPOINTS", "FAILED", "LEASED", "QUEUED", "REQUESTS"]

# Written out in statements, for a partial index serves only those where its own condition stands.
QUEUED: ColumnElement[str] = literal_column("'QUEUED'")
LEASED: ColumnElement[str] = literal_column("'LEASED'")
FAILED: tuple[ColumnElement[str], ...] = (
    literal_column("'FAILED'"),
    literal_column("'EXPIRED'"),
    literal_column("'CANCELLED'"),
)

_Sequence = BigInteger().with_variant(Integer, "sqlite")


def _partial(name: str, *columns: str, where: str) -> Index:
    # PostgreSQL's are the same, as the migrations say; said here too, they would have every start
    # import all of that dialect's drivers.
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
    # Who is told, as JSON; null where nobody is.
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
    # While it is queued: when it is ended without being sent. A cancellation brings it forward.
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
    # A number that was given once is never given again, though its row is forgotten.
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
    # With its case, as the requests have it.
    Column("endpoint_name", String(63), primary_key=True),
    Column("queued", BigInteger, nullable=False, server_default="0"),
    Column("leased", BigInteger, nullable=False, server_default="0"),
    Column("mode", String(16), nullable=False, server_default="OPEN"),
    Column("abandoned_to", BigInteger, nullable=False, server_default="0"),
)
