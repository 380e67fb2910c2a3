"""CloudWatch alarms; samples of ten seconds; longer ARNs of tagged resources."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "alarms",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("arn", sa.String(length=512), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("actions_enabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("configured_at", sa.Double(), nullable=False),
        sa.Column("state", sa.String(length=24), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("reason_data", sa.Text(), nullable=True),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("transitioned_at", sa.Double(), nullable=False),
        sa.Column("evaluation_state", sa.String(length=24), nullable=True),
        sa.Column("policies_invoked_at", sa.Double(), nullable=True),
        sa.Column("policy_outcome", sa.Text(), nullable=True),
        sa.Column("suppressed_by", sa.String(length=16), nullable=True),
        sa.Column("suppressed_until", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_alarms")),
    )
    op.create_index("ix_alarms_kind", "alarms", ["kind", "name"], unique=False)
    op.create_index("ix_alarms_suppressed_until", "alarms", ["suppressed_until"], unique=False)
    op.create_table(
        "alarm_children",
        sa.Column("parent", sa.String(length=255), nullable=False),
        sa.Column("child", sa.String(length=255), nullable=False),
        sa.Column("is_suppressor", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("parent", "child", "is_suppressor", name=op.f("pk_alarm_children")),
    )
    op.create_index("ix_alarm_children_child", "alarm_children", ["child"], unique=False)
    op.create_table(
        "alarm_history",
        sa.Column(
            "item_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("happened_at", sa.Double(), nullable=False),
        sa.Column("item_type", sa.String(length=24), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("item_id", name=op.f("pk_alarm_history")),
    )
    op.create_index("ix_alarm_history_name", "alarm_history", ["name", "item_id"], unique=False)
    op.create_index("ix_alarm_history_happened_at", "alarm_history", ["happened_at"], unique=False)
    op.create_table(
        "fine_samples",
        sa.Column(
            "series_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("slot", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("count", sa.Double(), nullable=False),
        sa.Column("sum", sa.Double(), nullable=False),
        sa.Column("minimum", sa.Double(), nullable=False),
        sa.Column("maximum", sa.Double(), nullable=False),
        sa.Column("buckets", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("series_id", "slot", name=op.f("pk_fine_samples")),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("tags") as tags:
        # An alarm's ARN has a name of up to 255 characters.
        tags.alter_column(
            "arn", existing_type=sa.String(length=256), type_=sa.String(length=512), nullable=False
        )
