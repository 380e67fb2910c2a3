"""Topics, subscriptions, deliveries, and the queues that they go to."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    sequence = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "deliveries",
        sa.Column("delivery_id", sequence, nullable=False),
        sa.Column("subscription_arn", sa.String(length=384), nullable=False),
        sa.Column("notice_id", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("delivery_id", name=op.f("pk_deliveries")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_deliveries_notice_id"), "deliveries", ["notice_id"])
    op.create_index(
        op.f("ix_deliveries_subscription_arn"), "deliveries", ["subscription_arn", "due_at"]
    )
    op.create_table(
        "emptied_queues",
        sa.Column("queue_id", sa.String(length=32), nullable=False),
        sa.Column("emptied_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("queue_id", name=op.f("pk_emptied_queues")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "notices",
        sa.Column("notice_id", sequence, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("notice_id", name=op.f("pk_notices")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "queue_messages",
        sa.Column("sequence", sequence, nullable=False),
        sa.Column("queue_id", sa.String(length=32), nullable=False),
        sa.Column("message_id", sa.String(length=36), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.Column("sent_at", sa.Double(), nullable=False),
        sa.Column("visible_at", sa.Double(), nullable=False),
        sa.Column("receives", sa.Integer(), nullable=False),
        sa.Column("first_received_at", sa.Double(), nullable=True),
        sa.Column("receipt", sa.String(length=32), nullable=True),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_queue_messages")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_queue_messages_sent", "queue_messages", ["queue_id", "sent_at"])
    op.create_index("ix_queue_messages_visible", "queue_messages", ["queue_id", "visible_at"])
    op.create_table(
        "queues",
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("queue_id", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("modified_at", sa.Double(), nullable=False),
        sa.Column("attributes", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_queues")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "subscriptions",
        sa.Column("arn", sa.String(length=384), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("topic_arn", sa.String(length=320), nullable=False),
        sa.Column("protocol", sa.String(length=32), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("attributes", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("token", sa.String(length=64), nullable=False),
        sa.Column("token_expires_at", sa.Double(), nullable=False),
        sa.Column("confirmed_by_owner", sa.Boolean(), nullable=False),
        sa.Column("authenticate_on_unsubscribe", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("arn", name=op.f("pk_subscriptions")),
        sa.UniqueConstraint("key", name=op.f("uq_subscriptions_key")),
        sa.UniqueConstraint("token", name=op.f("uq_subscriptions_token")),
    )
    op.create_index(op.f("ix_subscriptions_topic_arn"), "subscriptions", ["topic_arn", "state"])
    op.create_table(
        "topics",
        sa.Column("arn", sa.String(length=320), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("attributes", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("arn", name=op.f("pk_topics")),
    )
