"""The Async-Inference-Service: services, their jobs, what they answered, API keys."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "inference_services",
        sa.Column("stage", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("given", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("modified_at", sa.Double(), nullable=False),
        sa.Column("emails", sa.JSON(), nullable=False),
        sa.Column("closing", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("stage", name=op.f("pk_inference_services")),
    )
    _jobs()
    op.create_table(
        "inference_answers",
        sa.Column("stage", sa.String(length=64), nullable=False),
        sa.Column("api_key", sa.String(length=64), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255), nullable=False),
        sa.Column("body_sha256", sa.String(length=64), nullable=False),
        sa.Column("job_name", sa.String(length=63), nullable=False),
        sa.Column("remaining", sa.Integer(), nullable=False),
        sa.Column("queued", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint(
            "stage", "api_key", "idempotency_key", name=op.f("pk_inference_answers")
        ),
    )
    op.create_index("ix_inference_answers_created_at", "inference_answers", ["stage", "created_at"])
    op.create_table(
        "api_keys",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("key_sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("key_sha256", name=op.f("uq_api_keys_key_sha256")),
    )


def _jobs() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "inference_jobs",
        sa.Column("sequence", number, autoincrement=True, nullable=False),
        sa.Column("job_name", sa.String(length=63), nullable=False),
        sa.Column("stage", sa.String(length=64), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("topic_arn", sa.String(length=320), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=True),
        sa.Column("secondary", sa.String(length=32), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("result_uri", sa.Text(), nullable=True),
        sa.Column("notice_id", sa.String(length=128), nullable=True),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_inference_jobs")),
        sa.UniqueConstraint("job_name", name=op.f("uq_inference_jobs_job_name")),
        sa.UniqueConstraint("job_id", name=op.f("uq_inference_jobs_job_id")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_inference_jobs_type", "inference_jobs", ["stage", "type", "sequence"])
    op.create_index("ix_inference_jobs_stage", "inference_jobs", ["stage", "sequence"])
    _partial("queued", ["stage", "type", "sequence"], "state = 'QUEUED'")
    _partial("active", ["stage", "type"], "state = 'ACTIVE'")
    _partial("ended", ["stage", "ended_at"], "ended_at IS NOT NULL")


def _partial(name: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(
        f"ix_inference_jobs_{name}",
        "inference_jobs",
        columns,
        sqlite_where=condition,
        postgresql_where=condition,
    )
