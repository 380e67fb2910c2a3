"""Puts notices into queues."""

import uuid

import msgspec
from sqlalchemy import Connection

from sagehen.services.messaging.sns.envelopes import enclose
from sagehen.services.messaging.sns.records import Notice, SubscriptionRecord
from sagehen.services.messaging.sqs import message_store as messages
from sagehen.services.messaging.sqs import queue_store as queues
from sagehen.services.messaging.sqs.records import DeadLetters, MessageContent, NewMessage

__all__ = ["put_dead_letter", "put_message", "put_notice"]

MOST_RAW_ATTRIBUTES = 10
"""SQS's limit; SNS discards raw messages over it"""


def put_notice(
    connection: Connection, subscription: SubscriptionRecord, notice: Notice, signature_version: str
) -> bool:
    """Puts a notice into its queue, else the dead-letter queue; returns False if both fail."""
    message = _message(subscription, notice, signature_version)
    attributes = message.content.attributes
    if len(attributes) <= MOST_RAW_ATTRIBUTES and put_message(
        connection, subscription.endpoint, message, notice.published_at
    ):
        return True
    return put_dead_letter(connection, subscription, notice, signature_version)


def put_dead_letter(
    connection: Connection, subscription: SubscriptionRecord, notice: Notice, signature_version: str
) -> bool:
    """Uses the RedrivePolicy's queue, if any."""
    policy = subscription.attributes.get("RedrivePolicy")
    if not policy:
        return False
    target = msgspec.json.decode(policy, type=DeadLetters).dead_letter_target_arn
    message = _message(subscription, notice, signature_version)
    return put_message(connection, target, message, notice.published_at)


def _message(
    subscription: SubscriptionRecord, notice: Notice, signature_version: str
) -> NewMessage:
    message_id = str(uuid.uuid4())
    if subscription.attributes.get("RawMessageDelivery") == "true":
        return NewMessage(
            message_id=message_id,
            body=notice.text_for(subscription.protocol),
            content=MessageContent(attributes=dict(notice.attributes)),
        )
    envelope = enclose(notice, subscription.arn, subscription.protocol, signature_version)
    return NewMessage(message_id=message_id, content=MessageContent(envelope=envelope))


def put_message(connection: Connection, queue_arn: str, message: NewMessage, now: float) -> bool:
    """Returns False if the queue is gone."""
    queue = queues.by_arn(connection, queue_arn)
    if queue is None:
        return False
    messages.send(connection, queue, [message], now)
    return True
