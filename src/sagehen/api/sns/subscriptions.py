"""Subscribe, ListSubscriptions, ListSubscriptionsByTopic, Get- and SetSubscriptionAttributes."""

import uuid
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.api.call import Call
from sagehen.api.sns.attributes import BY_HTTP, check_subscription_attributes
from sagehen.api.sns.confirmation import TOKEN_SECONDS, ask_to_confirm, new_token
from sagehen.api.sns.listing import PAGE_SIZE, after, page_of
from sagehen.api.sns.policies import effective_subscription_policy
from sagehen.api.sns.protocols import check_endpoint
from sagehen.api.sns.refusals import check_arn_length, invalid, no_subscription
from sagehen.api.sns.topics import existing_topic
from sagehen.domain.topics import SubscriptionRecord, SubscriptionState, TopicRecord
from sagehen.domain.webhooks import new_secret
from sagehen.store import subscriptions
from sagehen.wire.faults import AwsError

__all__ = [
    "get_subscription_attributes",
    "list_subscriptions",
    "list_subscriptions_by_topic",
    "set_subscription_attributes",
    "subscribe",
]

MOST_FILTER_POLICIES = 200
"""Of one topic."""
PENDING = "pending confirmation"
LISTED_PENDING = "PendingConfirmation"


def subscribe(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Add a subscription, or find the one of that endpoint; who has to confirm it is asked to."""
    protocol, endpoint = params["Protocol"], params.get("Endpoint", "")
    with call.database.write() as connection:
        topic = existing_topic(connection, params["TopicArn"], lock=True)
        check_endpoint(call, protocol, endpoint)
        given = check_subscription_attributes(params.get("Attributes", {}), protocol, "Attributes")
        found = subscriptions.find(connection, topic.arn, protocol, endpoint)
        if found is None:
            found = _new(call, connection, topic, protocol, endpoint, given)
        elif any(found.attributes.get(name) != value for name, value in given.items()):
            raise invalid("Attributes", "Subscription already exists with different attributes")
        if found.state is SubscriptionState.PENDING:
            ask_to_confirm(call, connection, found)
    waits = found.state is SubscriptionState.PENDING and not params.get("ReturnSubscriptionArn")
    return {"SubscriptionArn": PENDING if waits else found.arn}


def list_subscriptions(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """One page of all subscriptions."""
    with call.database.read() as connection:
        return _page(call, connection, None, params)


def list_subscriptions_by_topic(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """One page of a topic's subscriptions."""
    with call.database.read() as connection:
        topic = existing_topic(connection, params["TopicArn"])
        return _page(call, connection, topic.arn, params)


def get_subscription_attributes(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """The attributes that were set, and those that SNS adds."""
    with call.database.read() as connection:
        found = _existing(connection, params["SubscriptionArn"])
        topic = existing_topic(connection, found.topic_arn)
    attributes = {
        "RawMessageDelivery": "false",
        **found.attributes,
        "ConfirmationWasAuthenticated": _flag(found.confirmed_by_owner),
        "Endpoint": found.endpoint,
        "Owner": call.settings.account_id,
        "PendingConfirmation": _flag(found.state is SubscriptionState.PENDING),
        "Protocol": found.protocol,
        "SubscriptionArn": found.arn,
        "TopicArn": found.topic_arn,
    }
    if "FilterPolicy" in found.attributes:
        attributes.setdefault("FilterPolicyScope", "MessageAttributes")
    if found.protocol in BY_HTTP:
        attributes["EffectiveDeliveryPolicy"] = effective_subscription_policy(topic, found)
    return {"Attributes": attributes}


def set_subscription_attributes(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Set one attribute, or take it back."""
    name, value = params["AttributeName"], params.get("AttributeValue", "")
    with call.database.write() as connection:
        found = _existing(connection, params["SubscriptionArn"], lock=True)
        kept = check_subscription_attributes({**found.attributes, name: value}, found.protocol)
        if found.protocol == "webhook":
            kept.setdefault("WebhookSecret", found.attributes["WebhookSecret"])
        if "FilterPolicy" in kept and "FilterPolicy" not in found.attributes:
            _check_filters(connection, found.topic_arn)
        changed = msgspec.structs.replace(found, attributes=kept)
        subscriptions.update_record(connection, changed)
    return {}


def _new(
    call: Call,
    connection: Connection,
    topic: TopicRecord,
    protocol: str,
    endpoint: str,
    attributes: dict[str, str],
) -> SubscriptionRecord:
    _check_room(call, connection, topic.arn)
    if "FilterPolicy" in attributes:
        _check_filters(connection, topic.arn)
    if protocol == "webhook":
        attributes = {"WebhookSecret": new_secret(), **attributes}
    # Queues are our own, and a webhook's receiver knows its secret from who subscribed it.
    confirmed = protocol in ("sqs", "webhook")
    now = call.clock.now()
    record = SubscriptionRecord(
        arn=f"{topic.arn}:{uuid.uuid4()}",
        topic_arn=topic.arn,
        protocol=protocol,
        endpoint=endpoint,
        state=SubscriptionState.CONFIRMED if confirmed else SubscriptionState.PENDING,
        created_at=now,
        attributes=attributes,
        token=new_token(),
        token_expires_at=now + TOKEN_SECONDS,
        confirmed_by_owner=confirmed,
    )
    subscriptions.insert(connection, record)
    return record


def _check_room(call: Call, connection: Connection, topic_arn: str) -> None:
    count = sum(subscriptions.count(connection, topic_arn).values())
    if count >= call.settings.max_topic_subscriptions:
        raise AwsError(
            "SubscriptionLimitExceeded",
            f"The topic has {count} subscriptions, as many as the setting "
            "max_topic_subscriptions allows.",
        )


def _check_filters(connection: Connection, topic_arn: str) -> None:
    if subscriptions.count_filtered(connection, topic_arn) >= MOST_FILTER_POLICIES:
        raise AwsError(
            "FilterPolicyLimitExceeded",
            f"A topic has at most {MOST_FILTER_POLICIES} subscriptions with a filter policy.",
        )


def _existing(connection: Connection, arn: str, lock: bool = False) -> SubscriptionRecord:
    check_arn_length("SubscriptionArn", arn)
    found = subscriptions.get(connection, arn, lock)
    if found is None or found.state is SubscriptionState.DELETED:
        raise no_subscription()
    return found


def _page(
    call: Call, connection: Connection, topic_arn: str | None, params: dict[str, Any]
) -> dict[str, Any]:
    found = subscriptions.page(connection, topic_arn, after(params), PAGE_SIZE + 1)
    listed = [_listed(call, one) for one in found]
    return page_of("Subscriptions", listed, [one.arn for one in found])


def _listed(call: Call, record: SubscriptionRecord) -> dict[str, str]:
    pending = record.state is SubscriptionState.PENDING
    return {
        "SubscriptionArn": LISTED_PENDING if pending else record.arn,
        "Owner": call.settings.account_id,
        "Protocol": record.protocol,
        "Endpoint": record.endpoint,
        "TopicArn": record.topic_arn,
    }


def _flag(value: bool) -> str:
    return "true" if value else "false"
