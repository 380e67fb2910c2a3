"""Tables of topics, their outbox, and queues."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
)

from sagehen.state.rows import METADATA

__all__ = [
    "DELIVERIES",
    "EMPTIED_QUEUES",
    "MESSAGES",
    "NOTICES",
    "QUEUES",
    "SUBSCRIPTIONS",
    "TOPICS",
]

# SQLite numbers rows only for INTEGER, 64 bits there, and reuses numbers without autoincrement.
_SEQUENCE = BigInteger().with_variant(Integer, "sqlite")

TOPICS = Table(
    "topics",
    METADATA,
    Column("arn", String(320), primary_key=True),
    Column("created_at", Double, nullable=False),
    Column("attributes", JSON(none_as_null=True), nullable=False),
)
SUBSCRIPTIONS = Table(
    "subscriptions",
    METADATA,
    Column("arn", String(384), primary_key=True),
    # Digest of topic, protocol and endpoint, unique together.
    Column("key", String(64), nullable=False, unique=True),
    Column("topic_arn", String(320), nullable=False),
    Column("protocol", String(32), nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("attributes", JSON(none_as_null=True), nullable=False),
    Column("token", String(64), nullable=False, unique=True),
    Column("token_expires_at", Double, nullable=False),
    Column("confirmed_by_owner", Boolean, nullable=False),
    Column("authenticate_on_unsubscribe", Boolean, nullable=False),
    Index(None, "topic_arn", "state"),
)
# One notice serves all its deliveries. JSON as bytes: PostgreSQL's text takes no NUL.
NOTICES = Table(
    "notices",
    METADATA,
    Column("notice_id", _SEQUENCE, primary_key=True),
    Column("content", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)
DELIVERIES = Table(
    "deliveries",
    METADATA,
    Column("delivery_id", _SEQUENCE, primary_key=True),
    Column("subscription_arn", String(384), nullable=False),
    Column("notice_id", BigInteger, nullable=False, index=True),
    Column("kind", String(32), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_at", Double, nullable=False),
    # Seconds from the write to `due_at`.
    Column("delay_seconds", Double),
    Index(None, "subscription_arn", "due_at"),
    sqlite_autoincrement=True,
)
QUEUES = Table(
    "queues",
    METADATA,
    Column("name", String(80), primary_key=True),
    # Key of the messages; emptying changes it.
    Column("queue_id", String(32), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("modified_at", Double, nullable=False),
    Column("attributes", JSON(none_as_null=True), nullable=False),
)
# Queues whose messages are still to be deleted.
EMPTIED_QUEUES = Table(
    "emptied_queues",
    METADATA,
    Column("queue_id", String(32), primary_key=True),
    Column("emptied_at", Double, nullable=False),
)
MESSAGES = Table(
    "queue_messages",
    METADATA,
    Column("sequence", _SEQUENCE, primary_key=True),
    Column("queue_id", String(32), nullable=False),
    Column("message_id", String(36), nullable=False),
    Column("body", Text, nullable=False),
    # JSON: data besides the body, or a notice's envelope in its place.
    Column("content", LargeBinary),
    Column("sent_at", Double, nullable=False),
    Column("visible_at", Double, nullable=False),
    Column("receives", Integer, nullable=False),
    Column("first_received_at", Double),
    Column("receipt", String(32)),
    # Seconds from the write to `visible_at`.
    Column("hidden_seconds", Double),
    Index("ix_queue_messages_visible", "queue_id", "visible_at"),
    Index("ix_queue_messages_sent", "queue_id", "sent_at"),
    sqlite_autoincrement=True,
)
