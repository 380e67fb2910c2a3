"""The topic of a service: made where it is missing, with the addresses of the settings, and no
longer those that were taken out of them."""

import uuid

import msgspec
from sqlalchemy import Connection

from sagehen.api.inference_service.service import Service
from sagehen.api.sns.confirmation import TOKEN_SECONDS, end_subscription, new_token
from sagehen.domain.inference_service import ServiceRecord
from sagehen.domain.names import ArnMaker
from sagehen.domain.topics import SubscriptionRecord, SubscriptionState, TopicRecord
from sagehen.store import inference_jobs, inference_services, subscriptions, topics

__all__ = ["ensure_topic", "unsubscribe_addresses"]

_BY_A_SERVICE = uuid.UUID("6a1b8f0e-5a0c-4f0e-9d54-2f9d6a3c7e11")


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


def unsubscribe_addresses(
    connection: Connection, kept: ServiceRecord, service: Service, arns: ArnMaker, now: float
) -> ServiceRecord:
    """The record of `service`, with the addresses of `kept`, as it was before, that are to stay.

    Those that are no more in its settings, or all if it has another topic now, are subscribed no
    longer, if it was a service that did it, and no other service has them at that topic. Those of
    another topic stay there too while jobs of the service have not ended: these are told of there.
    """
    moved = kept.topic_name != service.record.topic_name
    gone = moved and not _has_jobs(connection, kept.stage)
    wanted = () if gone else service.settings.emails
    others = {
        address
        for one in inference_services.all_services(connection)
        if one.stage != kept.stage and one.topic_name == kept.topic_name
        for address in one.emails
    }
    topic_arn = arns.sns(kept.topic_name)
    for address in kept.emails:
        if address not in wanted and address not in others:
            found = subscriptions.find(connection, topic_arn, "email", address)
            if found is not None and found.arn == _own_arn(topic_arn, address, found.created_at):
                end_subscription(connection, found, now)
    left = () if moved else tuple(address for address in kept.emails if address in wanted)
    return msgspec.structs.replace(service.record, emails=left)


def _has_jobs(connection: Connection, stage: str) -> bool:
    active = inference_jobs.active_by_type(connection, stage)
    return bool(active) or inference_jobs.queued(connection, stage) > 0


def _own_arn(topic_arn: str, address: str, created_at: float) -> str:
    """Of what a service has subscribed, and nobody else: it is known by that."""
    return f"{topic_arn}:{uuid.uuid5(_BY_A_SERVICE, f'{topic_arn} {address} {created_at!r}')}"


def _subscribe(connection: Connection, topic_arn: str, address: str, now: float) -> None:
    """Confirmed at once: who may change the settings may decide who gets mail."""
    record = SubscriptionRecord(
        arn=_own_arn(topic_arn, address, now),
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
