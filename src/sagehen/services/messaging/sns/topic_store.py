"""SQL of SNS topics, and publishing."""

import logging

import msgspec
from sqlalchemy import Connection, func, select, update

from sagehen.base.errors import Invalid
from sagehen.services.messaging.filters.policy import ATTRIBUTES, read_policy
from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.sns import subscription_store as subscriptions
from sagehen.services.messaging.sns.records import Notice, SubscriptionRecord, TopicRecord
from sagehen.services.messaging.sqs.notice_queues import put_notice
from sagehen.services.messaging.tables import TOPICS
from sagehen.state import rows

__all__ = ["count", "delete", "get", "insert", "list_arns", "publish", "set_attributes"]

log = logging.getLogger(__name__)


def publish(connection: Connection, notice: Notice) -> bool:
    """Adds a delivery per accepting subscription in the caller's transaction.

    Returns False if the topic is gone.

    Raises Invalid if structure is `json`, but the message does not fit it.
    """
    topic = get(connection, notice.topic_arn)
    if topic is None:
        return False
    notice.text_for("default")
    wanting = [one for one in subscriptions.confirmed(connection, topic.arn) if _wants(one, notice)]
    posted = []
    for subscription in wanting:
        if subscription.protocol != "sqs":
            posted.append(subscription.arn)
        elif not put_notice(connection, subscription, notice, topic.signature_version):
            log.warning(
                "A message was discarded: its queue is gone.",
                extra={
                    "action": "publish",
                    "subscription": subscription.arn,
                    "id": notice.message_id,
                },
            )
    deliveries.add(connection, notice, posted)
    return True


def insert(connection: Connection, record: TopicRecord) -> bool:
    """Returns False if the ARN is taken."""
    return rows.insert_new(connection, TOPICS, record)


def get(connection: Connection, arn: str, lock: bool = False) -> TopicRecord | None:
    found = rows.select_records(connection, TOPICS, TopicRecord, TOPICS.c.arn == arn, lock=lock)
    return found[0] if found else None


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


def _wants(subscription: SubscriptionRecord, notice: Notice) -> bool:
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
