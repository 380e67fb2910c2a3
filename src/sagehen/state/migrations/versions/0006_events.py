"""EventBridge's rules and their targets."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "event_rules",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("event_pattern", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("role_arn", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_event_rules")),
    )
    op.create_index(op.f("ix_event_rules_state"), "event_rules", ["state"], unique=False)
    op.create_table(
        "event_targets",
        sa.Column("rule_name", sa.String(length=64), nullable=False),
        sa.Column("target_id", sa.String(length=64), nullable=False),
        sa.Column("target_arn", sa.Text(), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("secret", sa.String(length=128), nullable=True),
        sa.PrimaryKeyConstraint("rule_name", "target_id", name=op.f("pk_event_targets")),
    )
    op.create_index("ix_event_targets_target_arn", "event_targets", ["target_arn"], unique=False)
    for name in ("event_connections", "event_destinations"):
        op.create_table(
            name,
            sa.Column("name", sa.String(length=64), nullable=False),
            sa.Column("arn", sa.String(length=256), nullable=False),
            sa.Column("definition", sa.JSON(), nullable=False),
            sa.Column("created_at", sa.Double(), nullable=False),
            sa.Column("modified_at", sa.Double(), nullable=False),
            sa.PrimaryKeyConstraint("name", name=op.f(f"pk_{name}")),
        )
