"""The queue of asynchronous requests."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "async_requests",
        sa.Column("sequence", _SEQUENCE, autoincrement=True, nullable=False),
        sa.Column("request_id", sa.String(length=36), nullable=False),
        sa.Column("inference_id", sa.String(length=64), nullable=False),
        sa.Column("endpoint_name", sa.String(length=63), nullable=False),
        sa.Column("received_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("timeout_seconds", sa.Double(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("failure_location", sa.Text(), nullable=True),
        sa.Column("notices", sa.Text(), nullable=True),
        sa.Column("input_location", sa.Text(), nullable=True),
        sa.Column("content_type", sa.Text(), nullable=True),
        sa.Column("accept", sa.Text(), nullable=True),
        sa.Column("custom_attributes", sa.Text(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("lost", sa.Integer(), nullable=False),
        sa.Column("reclaimed", sa.Integer(), nullable=False),
        sa.Column("redrives", sa.Integer(), nullable=False),
        sa.Column("end_at", sa.Double(), nullable=False),
        sa.Column("cancel_requested_at", sa.Double(), nullable=True),
        sa.Column("worker", sa.String(length=512), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_async_requests")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_async_requests_inference", "async_requests", ["endpoint_name", "inference_id"]
    )
    queued, leased = "state = 'QUEUED'", "state = 'LEASED'"
    _partial_index("queued", ["endpoint_name", "sequence"], queued)
    _partial_index("end_at", ["end_at"], queued)
    _partial_index("leased", ["lease_until"], leased)
    failed = "state IN ('FAILED', 'EXPIRED', 'CANCELLED')"
    _partial_index("failed", ["endpoint_name", "sequence"], failed)
    _partial_index("ended_at", ["ended_at"], "ended_at IS NOT NULL")
    op.create_table(
        "async_bodies",
        sa.Column("sequence", _SEQUENCE, autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_async_bodies")),
    )
    op.create_table(
        "async_endpoints",
        sa.Column("endpoint_name", sa.String(length=63), nullable=False),
        sa.Column("queued", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("leased", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("mode", sa.String(length=16), server_default="OPEN", nullable=False),
        sa.Column("abandoned_to", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("endpoint_name", name=op.f("pk_async_endpoints")),
    )


def _partial_index(name: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(
        f"ix_async_requests_{name}",
        "async_requests",
        columns,
        sqlite_where=where,
        postgresql_where=where,
    )
