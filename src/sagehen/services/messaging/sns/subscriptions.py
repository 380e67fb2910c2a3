"""Operations on subscriptions, and checks of endpoints."""

import re
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
from sqlalchemy import Connection

from sagehen.frame.context import RequestContext
from sagehen.frame.paging import page_of
from sagehen.services.messaging.sns import subscription_store as subscriptions
from sagehen.services.messaging.sns.attributes import (
    BY_HTTP,
    check_subscription_attributes,
    effective_subscription_policy,
)
from sagehen.services.messaging.sns.confirmation import (
    TOKEN_SECONDS,
    ask_to_confirm,
    new_token,
)
from sagehen.services.messaging.sns.errors import check_arn_length, invalid, no_subscription
from sagehen.services.messaging.sns.records import (
    SubscriptionRecord,
    SubscriptionState,
    TopicRecord,
)
from sagehen.services.messaging.sns.topics import PAGE_SIZE, existing_topic, start_of_page
from sagehen.services.messaging.webhooks import new_secret
from sagehen.wire.errors import AwsError

__all__ = [
    "check_endpoint",
    "get_subscription_attributes",
    "list_subscriptions",
    "list_subscriptions_by_topic",
    "set_subscription_attributes",
    "subscribe",
]

MAX_ENDPOINT_LENGTH = 2048
_NOT_DELIVERED = ("sms", "application", "lambda", "firehose")
_MAIL = re.compile(r"[^@\s,;:<>()\[\]\\\"]{1,64}@[^@\s,;:<>()\[\]\\\"]{1,255}")


def check_endpoint(call: RequestContext, protocol: str, endpoint: str) -> None:
    """Raises AwsError."""
    if protocol in _NOT_DELIVERED:
        raise invalid(
            "Protocol",
            f"Sagehen does not deliver by {protocol}; it does by {', '.join(sorted(_CHECKS))}",
        )
    if protocol not in _CHECKS:
        raise invalid(
            f"Amazon SNS does not support this protocol string: {protocol[:64]}",
            f"Sagehen delivers by {', '.join(sorted(_CHECKS))}",
        )
    if len(endpoint) > MAX_ENDPOINT_LENGTH:
        raise invalid("Endpoint", f"it has at most {MAX_ENDPOINT_LENGTH} characters")
    _CHECKS[protocol](call, endpoint)


def _url(*schemes: str) -> Callable[[RequestContext, str], None]:
    def check(_: RequestContext, endpoint: str) -> None:
        try:
            parts = urlsplit(endpoint)
            is_valid = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_valid = False
        if not is_valid or not endpoint.isascii() or not endpoint.isprintable() or " " in endpoint:
            raise invalid(
                "Endpoint must match the specified protocol",
                f"it is a URL that begins with {' or '.join(f'{scheme}://' for scheme in schemes)}",
            )

    return check


def _mail(call: RequestContext, endpoint: str) -> None:
    if not _MAIL.fullmatch(endpoint):
        raise invalid("Email address")
    if call.settings.smtp_host is None:
        raise invalid("Protocol", "e-mail is sent once the setting smtp_host names a mail server")


def _queue(call: RequestContext, endpoint: str) -> None:
    if endpoint.endswith(".fifo"):
        # SNS repeats these words, too.
        raise invalid(
            "Invalid parameter: Endpoint",
            "FIFO SQS Queues can not be subscribed to standard SNS topics",
        )
    name = endpoint.rpartition(":")[2]
    if not name or endpoint != call.arns.sqs(name):
        raise invalid("SQS endpoint ARN")


_CHECKS: dict[str, Callable[[RequestContext, str], None]] = {
    "email": _mail,
    "email-json": _mail,
    "http": _url("http"),
    "https": _url("https"),
    "sqs": _queue,
    "webhook": _url("http", "https"),
}


MAX_FILTER_POLICIES = 200
"""per topic"""
PENDING = "pending confirmation"
LISTED_PENDING = "PendingConfirmation"


def subscribe(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Adds or finds a subscription; a pending one is asked to confirm."""
    protocol, endpoint = params["Protocol"], params.get("Endpoint", "")
    with call.database.write() as connection:
        topic = existing_topic(connection, params["TopicArn"], lock=True)
        check_endpoint(call, protocol, endpoint)
        attributes = check_subscription_attributes(
            params.get("Attributes", {}), protocol, "Attributes"
        )
        subscription = subscriptions.find(connection, topic.arn, protocol, endpoint)
        if subscription is None:
            subscription = _new(call, connection, topic, protocol, endpoint, attributes)
        elif any(subscription.attributes.get(name) != value for name, value in attributes.items()):
            raise invalid("Attributes", "Subscription already exists with different attributes")
        if subscription.state is SubscriptionState.PENDING:
            ask_to_confirm(call, connection, subscription)
    waits = subscription.state is SubscriptionState.PENDING and not params.get(
        "ReturnSubscriptionArn"
    )
    return {"SubscriptionArn": PENDING if waits else subscription.arn}


def list_subscriptions(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    with call.database.read() as connection:
        return _page(call, connection, None, params)


def list_subscriptions_by_topic(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    with call.database.read() as connection:
        topic = existing_topic(connection, params["TopicArn"])
        return _page(call, connection, topic.arn, params)


def get_subscription_attributes(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    with call.database.read() as connection:
        subscription = _existing(connection, params["SubscriptionArn"])
        topic = existing_topic(connection, subscription.topic_arn)
    attributes = {
        "RawMessageDelivery": "false",
        **subscription.attributes,
        "ConfirmationWasAuthenticated": _flag(subscription.confirmed_by_owner),
        "Endpoint": subscription.endpoint,
        "Owner": call.settings.account_id,
        "PendingConfirmation": _flag(subscription.state is SubscriptionState.PENDING),
        "Protocol": subscription.protocol,
        "SubscriptionArn": subscription.arn,
        "SubscriptionPrincipal": call.arns.root(),
        "TopicArn": subscription.topic_arn,
    }
    if "FilterPolicy" in subscription.attributes:
        attributes.setdefault("FilterPolicyScope", "MessageAttributes")
    if subscription.protocol in BY_HTTP:
        attributes["EffectiveDeliveryPolicy"] = effective_subscription_policy(topic, subscription)
    return {"Attributes": attributes}


def set_subscription_attributes(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """An empty value unsets the attribute."""
    name, value = params["AttributeName"], params.get("AttributeValue", "")
    with call.database.write() as connection:
        subscription = _existing(connection, params["SubscriptionArn"], lock=True)
        attributes = check_subscription_attributes(
            {**subscription.attributes, name: value}, subscription.protocol
        )
        if name == "FilterPolicy" and not value:
            attributes.pop("FilterPolicyScope", None)
        if subscription.protocol == "webhook":
            attributes.setdefault("WebhookSecret", subscription.attributes["WebhookSecret"])
        if "FilterPolicy" in attributes and "FilterPolicy" not in subscription.attributes:
            _check_filters(connection, subscription.topic_arn)
        changed = msgspec.structs.replace(subscription, attributes=attributes)
        subscriptions.update_record(connection, changed)
    return {}


def _new(
    call: RequestContext,
    connection: Connection,
    topic: TopicRecord,
    protocol: str,
    endpoint: str,
    attributes: dict[str, str],
) -> SubscriptionRecord:
    _check_quota(call, connection, topic.arn)
    if "FilterPolicy" in attributes:
        _check_filters(connection, topic.arn)
    if protocol == "webhook":
        attributes = {"WebhookSecret": new_secret(), **attributes}
    # Queues are our own, and a webhook's receiver learns its secret from the subscriber.
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


def _check_quota(call: RequestContext, connection: Connection, topic_arn: str) -> None:
    count = sum(subscriptions.count(connection, topic_arn).values())
    if count >= call.settings.max_topic_subscriptions:
        raise AwsError(
            "SubscriptionLimitExceeded",
            f"The topic has {count} subscriptions, as many as the setting "
            "max_topic_subscriptions allows.",
        )


def _check_filters(connection: Connection, topic_arn: str) -> None:
    if subscriptions.count_filtered(connection, topic_arn) >= MAX_FILTER_POLICIES:
        raise AwsError(
            "FilterPolicyLimitExceeded",
            f"A topic has at most {MAX_FILTER_POLICIES} subscriptions with a filter policy.",
        )


def _existing(connection: Connection, arn: str, lock: bool = False) -> SubscriptionRecord:
    check_arn_length("SubscriptionArn", arn)
    subscription = subscriptions.get(connection, arn, lock)
    if subscription is None or subscription.state is SubscriptionState.DELETED:
        raise no_subscription()
    return subscription


def _page(
    call: RequestContext, connection: Connection, topic_arn: str | None, params: dict[str, Any]
) -> dict[str, Any]:
    records = subscriptions.page(connection, topic_arn, start_of_page(params), PAGE_SIZE + 1)
    listed = [_listed(call, record) for record in records]
    return page_of("Subscriptions", listed, [record.arn for record in records], PAGE_SIZE)


def _listed(call: RequestContext, record: SubscriptionRecord) -> dict[str, str]:
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
