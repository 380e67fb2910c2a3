"""The tables of the inference service."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Double,
    Index,
    Integer,
    String,
    Table,
    Text,
    literal_column,
    text,
)

from sagehen.state.rows import METADATA

__all__ = ["ACTIVE", "ANSWERS", "API_KEYS", "JOBS", "QUEUED", "SERVICES"]

# Literals: a partial index only serves statements that contain its condition.
QUEUED: ColumnElement[str] = literal_column("'QUEUED'")
ACTIVE: ColumnElement[str] = literal_column("'ACTIVE'")


def _partial(name: str, *columns: str, where: str) -> Index:
    # The migrations repeat this for PostgreSQL, whose dialect would slow every start.
    return Index(name, *columns, sqlite_where=text(where))


SERVICES = Table(
    "inference_services",
    METADATA,
    Column("stage", String(64), primary_key=True),
    Column("source", String(16), nullable=False),
    Column("given", JSON(none_as_null=True), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("modified_at", Double, nullable=False),
    Column("emails", JSON(none_as_null=True), nullable=False),
    Column("closing", Boolean, nullable=False),
)
JOBS = Table(
    "inference_jobs",
    METADATA,
    Column(
        "sequence",
        BigInteger().with_variant(Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    Column("job_name", String(63), nullable=False, unique=True),
    Column("stage", String(64), nullable=False),
    Column("type", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("topic_arn", String(320), nullable=False),
    Column("definition", JSON(none_as_null=True), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("job_id", String(32), unique=True),
    Column("status", String(16)),
    Column("secondary", String(32)),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("failure_reason", Text),
    Column("result_uri", Text),
    Column("notice_id", String(128)),
    Index("ix_inference_jobs_stage", "stage", "sequence"),
    Index("ix_inference_jobs_type", "stage", "type", "sequence"),
    _partial("ix_inference_jobs_queued", "stage", "type", "sequence", where="state = 'QUEUED'"),
    _partial("ix_inference_jobs_active", "stage", "type", where="state = 'ACTIVE'"),
    _partial("ix_inference_jobs_ended", "stage", "ended_at", where="ended_at IS NOT NULL"),
    # Never reuse a number, even of a deleted row.
    sqlite_autoincrement=True,
)
ANSWERS = Table(
    "inference_answers",
    METADATA,
    Column("stage", String(64), primary_key=True),
    Column("api_key", String(64), primary_key=True),
    Column("idempotency_key", String(255), primary_key=True),
    Column("body_sha256", String(64), nullable=False),
    Column("job_name", String(63), nullable=False),
    Column("remaining", Integer, nullable=False),
    Column("queued", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    Index("ix_inference_answers_created_at", "stage", "created_at"),
)
API_KEYS = Table(
    "api_keys",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("key_sha256", String(64), nullable=False, unique=True),
    Column("created_at", Double, nullable=False),
)
