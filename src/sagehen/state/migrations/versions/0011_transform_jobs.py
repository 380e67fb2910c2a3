"""Transform jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "transform_jobs",
        sa.Column("key", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("modified_at", sa.Double(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("containers", sa.JSON(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("stop_requested_at", sa.Double(), nullable=True),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_transform_jobs")),
        sa.UniqueConstraint("job_id", name=op.f("uq_transform_jobs_job_id")),
    )
    op.create_index(
        op.f("ix_transform_jobs_created_at"), "transform_jobs", ["created_at"], unique=False
    )
    op.create_index(
        op.f("ix_transform_jobs_status"),
        "transform_jobs",
        ["status", "stage", "created_at"],
        unique=False,
    )
    op.create_index(
        "ix_transform_jobs_stage", "transform_jobs", ["stage", "created_at", "key"], unique=False
    )
    op.create_table(
        "transform_progress",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("done_through", sa.Text(), nullable=True),
        sa.Column("done", sa.JSON(), nullable=False),
        sa.Column("failed", sa.JSON(), nullable=False),
        sa.Column("failed_objects", sa.BigInteger(), nullable=False),
        sa.Column("failed_error", sa.String(length=32), nullable=True),
        sa.Column("objects", sa.BigInteger(), nullable=False),
        sa.Column("objects_known", sa.BigInteger(), nullable=False),
        sa.Column("is_listed", sa.Boolean(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("done_records", sa.BigInteger(), nullable=False),
        sa.Column("failed_records", sa.BigInteger(), nullable=False),
        sa.Column("input_bytes", sa.BigInteger(), nullable=False),
        sa.Column("input_bytes_known", sa.BigInteger(), nullable=False),
        sa.Column("max_concurrent", sa.Integer(), nullable=True),
        sa.Column("max_payload_mb", sa.Integer(), nullable=True),
        sa.Column("batch_strategy", sa.String(length=16), nullable=True),
        sa.Column("uploads", sa.JSON(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_transform_progress")),
    )
