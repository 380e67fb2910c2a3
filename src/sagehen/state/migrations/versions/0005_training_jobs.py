"""Training jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "training_jobs",
        sa.Column("key", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("modified_at", sa.Double(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("transitions", sa.JSON(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("phases", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("run_seconds", sa.Double(), nullable=False),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("stop_requested_at", sa.Double(), nullable=True),
        sa.Column("ends_as", sa.String(length=32), nullable=False),
        sa.Column("gives_up_at", sa.Double(), nullable=True),
        sa.Column("clock_shift", sa.Double(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("artifacts", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_training_jobs")),
        sa.UniqueConstraint("job_id", name=op.f("uq_training_jobs_job_id")),
    )
    op.create_index(
        op.f("ix_training_jobs_created_at"), "training_jobs", ["created_at"], unique=False
    )
    op.create_index(
        op.f("ix_training_jobs_status"),
        "training_jobs",
        ["status", "stage", "created_at"],
        unique=False,
    )
    op.create_index(
        "ix_training_jobs_stage", "training_jobs", ["stage", "created_at", "key"], unique=False
    )
    op.create_index(
        "ix_training_jobs_gives_up_at", "training_jobs", ["stage", "gives_up_at"], unique=False
    )
