"""SQL of SNS topics, and publishing."""

import logging
import uuid

import msgspec
from sqlalchemy import JSON, Column, Connection, Double, String, Table, func, select, update

from sagehen.base.errors import Invalid
from sagehen.services.messaging.filters.policy import ATTRIBUTES, read_policy
from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.sns import subscription_store as subscriptions
from sagehen.services.messaging.sns.envelopes import enclose
from sagehen.services.messaging.sns.records import (
    Notice,
    PostKind,
    SubscriptionRecord,
    TopicRecord,
)
from sagehen.services.messaging.sqs.message_store import put_message
from sagehen.services.messaging.sqs.records import DeadLetters, MessageContent, NewMessage
from sagehen.state import rows
from sagehen.state.rows import METADATA

__all__ = [
    "TOPICS",
    "count",
    "delete",
    "get",
    "insert",
    "list_arns",
    "publish",
    "put_dead_letter",
    "set_attributes",
]
TOPICS = Table(
    "topics",
    METADATA,
    Column("arn", String(320), primary_key=True),
    Column("created_at", Double, nullable=False),
    Column("attributes", JSON(none_as_null=True), nullable=False),
)

log = logging.getLogger(__name__)

MAX_RAW_ATTRIBUTES = 10
"""SQS's limit; SNS discards raw messages over it"""


def publish(connection: Connection, notice: Notice) -> bool:
    """Adds a delivery per accepting subscription in the caller's transaction.

    Returns False if the topic is gone.

    Raises Invalid if structure is `json`, but the message does not fit it.
    """
    topic = get(connection, notice.topic_arn)
    if topic is None:
        return False
    notice.text_for("default")
    addresses = []
    for subscription in subscriptions.confirmed(connection, topic.arn):
        if not _accepts(subscription, notice):
            continue
        if subscription.protocol != "sqs":
            addresses.append(subscription.arn)
        elif not _put_notice(connection, subscription, notice, topic.signature_version):
            log.warning(
                "A message was discarded: its queue is gone.",
                extra={
                    "action": "publish",
                    "subscription": subscription.arn,
                    "id": notice.message_id,
                },
            )
    deliveries.add(connection, notice, addresses, PostKind.NOTIFICATION)
    return True


def put_dead_letter(
    connection: Connection, subscription: SubscriptionRecord, notice: Notice, signature_version: str
) -> bool:
    """Uses the RedrivePolicy's queue; returns False if there is none."""
    policy = subscription.attributes.get("RedrivePolicy")
    if not policy:
        return False
    queue_arn = msgspec.json.decode(policy, type=DeadLetters).dead_letter_target_arn
    message = _queue_message(subscription, notice, signature_version)
    return put_message(connection, queue_arn, message, notice.published_at)


def insert(connection: Connection, record: TopicRecord) -> bool:
    """Returns False if the ARN is taken."""
    return rows.insert_new(connection, TOPICS, record)


def get(connection: Connection, arn: str, lock: bool = False) -> TopicRecord | None:
    records = rows.select_records(connection, TOPICS, TopicRecord, TOPICS.c.arn == arn, lock=lock)
    return records[0] if records else None


def list_arns(connection: Connection, after: str, limit: int) -> list[str]:
    statement = select(TOPICS.c.arn).where(TOPICS.c.arn > after).order_by(TOPICS.c.arn)
    return list(connection.scalars(statement.limit(limit)))


def count(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(TOPICS)) or 0


def set_attributes(connection: Connection, arn: str, attributes: dict[str, str]) -> None:
    statement = update(TOPICS).where(TOPICS.c.arn == arn)
    connection.execute(statement.values(attributes=msgspec.to_builtins(attributes)))


def delete(connection: Connection, arn: str) -> bool:
    """Also deletes subscriptions and deliveries; returns False if there is none."""
    subscriptions.drop_all(connection, arn)
    return rows.delete_where(connection, TOPICS, TOPICS.c.arn == arn)


def _put_notice(
    connection: Connection, subscription: SubscriptionRecord, notice: Notice, signature_version: str
) -> bool:
    """Puts a notice into its queue, else the dead-letter queue; returns False if both fail."""
    message = _queue_message(subscription, notice, signature_version)
    attributes = message.content.attributes
    if len(attributes) <= MAX_RAW_ATTRIBUTES and put_message(
        connection, subscription.endpoint, message, notice.published_at
    ):
        return True
    return put_dead_letter(connection, subscription, notice, signature_version)


def _queue_message(
    subscription: SubscriptionRecord, notice: Notice, signature_version: str
) -> NewMessage:
    message_id = str(uuid.uuid4())
    content = MessageContent(group_id=notice.group_id, trace_header=notice.trace_header)
    if subscription.attributes.get("RawMessageDelivery") == "true":
        return NewMessage(
            message_id=message_id,
            body=notice.text_for(subscription.protocol),
            content=msgspec.structs.replace(content, attributes=dict(notice.attributes)),
        )
    envelope = enclose(notice, subscription.arn, subscription.protocol, signature_version)
    return NewMessage(
        message_id=message_id, content=msgspec.structs.replace(content, envelope=envelope)
    )


def _accepts(subscription: SubscriptionRecord, notice: Notice) -> bool:
    text = subscription.attributes.get("FilterPolicy")
    if not text:
        return True
    scope = subscription.attributes.get("FilterPolicyScope", ATTRIBUTES)
    try:
        policy = read_policy(text, scope)
    except Invalid:
        # The policy was checked when it was set. Deliver rather too much than too little.
        log.exception("A filter policy cannot be read.", extra={"action": "publish"})
        return True
    return policy.accepts(notice.text_for(subscription.protocol), notice.attributes)
