"""Application Auto Scaling: scalable targets, policies, scheduled actions and activities."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "scalable_targets",
        sa.Column("target_id", sa.String(length=34), nullable=False),
        sa.Column("resource_id", sa.String(length=255), nullable=False),
        sa.Column("dimension", sa.String(length=64), nullable=False),
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("minimum", sa.Integer(), nullable=False),
        sa.Column("maximum", sa.Integer(), nullable=False),
        sa.Column("suspended", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("adjusted_for", sa.String(length=64), nullable=True),
        sa.Column("last_out", sa.JSON(), nullable=True),
        sa.Column("last_in", sa.JSON(), nullable=True),
        sa.Column("last_decision", sa.Text(), nullable=True),
        sa.Column("decided_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("target_id", name=op.f("pk_scalable_targets")),
        sa.UniqueConstraint(
            "resource_id", "dimension", name=op.f("uq_scalable_targets_resource_id")
        ),
    )
    op.create_table(
        "scaling_policies",
        sa.Column("policy_id", sa.String(length=36), nullable=False),
        sa.Column("target_id", sa.String(length=34), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("arn", sa.Text(), nullable=False),
        sa.Column("policy_type", sa.String(length=32), nullable=False),
        sa.Column("configuration", sa.JSON(), nullable=False),
        sa.Column("alarms", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("breach", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("policy_id", name=op.f("pk_scaling_policies")),
        sa.UniqueConstraint("target_id", "name", name=op.f("uq_scaling_policies_target_id")),
    )
    op.create_table(
        "scheduled_actions",
        sa.Column("action_id", sa.String(length=36), nullable=False),
        sa.Column("target_id", sa.String(length=34), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("arn", sa.Text(), nullable=False),
        sa.Column("schedule", sa.String(length=1600), nullable=False),
        sa.Column("timezone", sa.String(length=64), nullable=True),
        sa.Column("starts_at", sa.Double(), nullable=True),
        sa.Column("ends_at", sa.Double(), nullable=True),
        sa.Column("minimum", sa.Integer(), nullable=True),
        sa.Column("maximum", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("next_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("action_id", name=op.f("pk_scheduled_actions")),
        sa.UniqueConstraint("target_id", "name", name=op.f("uq_scheduled_actions_target_id")),
    )
    op.create_index(
        op.f("ix_scheduled_actions_next_at"), "scheduled_actions", ["next_at"], unique=False
    )
    op.create_table(
        "scaling_activities",
        sa.Column("number", _SEQUENCE, autoincrement=True, nullable=False),
        sa.Column("activity_id", sa.String(length=36), nullable=False),
        sa.Column("resource_id", sa.String(length=255), nullable=False),
        sa.Column("dimension", sa.String(length=64), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("not_scaled", sa.JSON(), nullable=True),
        sa.Column("desired", sa.Integer(), nullable=True),
        sa.Column("capacity", sa.Integer(), nullable=True),
        sa.Column("before", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_scaling_activities")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        op.f("ix_scaling_activities_status"), "scaling_activities", ["status"], unique=False
    )
    op.create_index(
        op.f("ix_scaling_activities_resource_id"),
        "scaling_activities",
        ["resource_id", "dimension", "number"],
        unique=False,
    )
