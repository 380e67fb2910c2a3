"""The topic of a service: made where it is missing, with the addresses of the settings."""

import uuid

import msgspec
from sqlalchemy import Connection

from sagehen.api.inference_service.service import Service
from sagehen.api.sns.confirmation import TOKEN_SECONDS, new_token
from sagehen.domain.inference_service import ServiceRecord
from sagehen.domain.topics import SubscriptionRecord, SubscriptionState, TopicRecord
from sagehen.store import subscriptions, topics

__all__ = ["ensure_topic"]


def ensure_topic(
    connection: Connection, service: Service, topic_arn: str, now: float
) -> ServiceRecord:
    """The record of `service`, with the addresses that are subscribed now.

    Who has unsubscribed stays so, unless the topic itself had gone.
    """
    topic = TopicRecord(arn=topic_arn, created_at=now, attributes={})
    is_new = topics.insert(connection, topic)
    known = () if is_new else service.record.emails
    for address in service.settings.emails:
        if address not in known:
            _subscribe(connection, topic_arn, address, now)
    return msgspec.structs.replace(service.record, emails=service.settings.emails)


def _subscribe(connection: Connection, topic_arn: str, address: str, now: float) -> None:
    """Confirmed at once: who may change the settings may decide who gets mail."""
    record = SubscriptionRecord(
        arn=f"{topic_arn}:{uuid.uuid4()}",
        topic_arn=topic_arn,
        protocol="email",
        endpoint=address,
        state=SubscriptionState.CONFIRMED,
        created_at=now,
        attributes={},
        token=new_token(),
        token_expires_at=now + TOKEN_SECONDS,
        confirmed_by_owner=True,
    )
    subscriptions.insert(connection, record)
