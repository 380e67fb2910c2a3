"""ConfirmSubscription and Unsubscribe, by the owner or by unsigned links in messages."""

import re
import secrets
import uuid
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.frame.context import RequestContext
from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.sns import (
    subscription_store as subscriptions,
)
from sagehen.services.messaging.sns import (
    topic_store as topics,
)
from sagehen.services.messaging.sns.errors import check_arn_length, invalid
from sagehen.services.messaging.sns.records import (
    Notice,
    PostKind,
    SubscriptionRecord,
    SubscriptionState,
)
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request
from sagehen.wire.parameters import parameters_of
from sagehen.wire.scope import Signing, signing_of

__all__ = [
    "LINKED",
    "TOKEN_SECONDS",
    "ask_to_confirm",
    "confirm_subscription",
    "end_subscription",
    "looks_like_link",
    "new_token",
    "unsubscribe",
]

_COLONS_OF_TOPICS = 5
"""a subscription's ARN has one more, and its id"""
TOKEN_SECONDS = 2 * 24 * 3600.0

_SUBSCRIBED = (
    "You have chosen to subscribe to the topic {topic}.\n"
    "To confirm the subscription, visit the SubscribeURL included in this message."
)
_UNSUBSCRIBED = (
    "You have chosen to deactivate subscription {subscription}.\n"
    "To cancel this operation and restore the subscription, visit the SubscribeURL included in "
    "this message."
)


_TOKEN = re.compile("[0-9a-f]+")


def new_token() -> str:
    return secrets.token_hex(32)


def ask_to_confirm(
    call: RequestContext, connection: Connection, subscription: SubscriptionRecord
) -> None:
    """Posts a confirmation request and restarts the token's lifetime."""
    text = _SUBSCRIBED.format(topic=subscription.topic_arn)
    _post(call, connection, subscription, PostKind.SUBSCRIPTION_CONFIRMATION, text)


def confirm_subscription(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """A repeated call changes nothing. An UnsubscribeConfirmation's token restores a deleted
    subscription."""
    with call.database.write() as connection:
        subscription = subscriptions.by_token(connection, params["Token"], lock=True)
        if subscription is None or subscription.topic_arn != params["TopicArn"]:
            is_token = _TOKEN.fullmatch(params["Token"])
            raise invalid("Token") if is_token else AwsError("InvalidParameter", "Invalid token")
        if subscription.state is SubscriptionState.CONFIRMED:
            return {"SubscriptionArn": subscription.arn}
        if subscription.token_expires_at <= call.clock.now():
            raise invalid("Token", "it has expired: subscribe again")
        newer = subscriptions.find(
            connection, subscription.topic_arn, subscription.protocol, subscription.endpoint
        )
        if newer is not None and newer.arn != subscription.arn:
            # The endpoint was subscribed again: only the newer subscription's token confirms.
            raise invalid("Token", "the endpoint was subscribed again since")
        locked = params.get("AuthenticateOnUnsubscribe", "").lower() == "true"
        confirmed = msgspec.structs.replace(
            subscription,
            state=SubscriptionState.CONFIRMED,
            confirmed_by_owner=not call.by_link,
            authenticate_on_unsubscribe=locked and not call.by_link,
        )
        subscriptions.update_record(connection, confirmed)
    return {"SubscriptionArn": subscription.arn}


def unsubscribe(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """An unknown ARN is no error."""
    arn = params["SubscriptionArn"]
    check_arn_length("SubscriptionArn", arn)
    if arn.count(":") == _COLONS_OF_TOPICS:
        raise invalid("SubscriptionId")
    with call.database.write() as connection:
        subscription = subscriptions.get(connection, arn, lock=True)
        if subscription is None or subscription.state is SubscriptionState.DELETED:
            return {}
        if call.by_link and subscription.authenticate_on_unsubscribe:
            raise AwsError("AuthorizationError", "Only the topic's owner may unsubscribe it")
        deleted = end_subscription(connection, subscription, call.clock.now())
        if (
            subscription.protocol in ("http", "https")
            and subscription.state is SubscriptionState.CONFIRMED
        ):
            text = _UNSUBSCRIBED.format(subscription=arn)
            _post(call, connection, deleted, PostKind.UNSUBSCRIBE_CONFIRMATION, text)
    return {}


def end_subscription(
    connection: Connection, subscription: SubscriptionRecord, now: float
) -> SubscriptionRecord:
    """Keeps the record, as its token may restore it, but drops pending deliveries."""
    deliveries.drop(connection, [subscription.arn])
    deleted = msgspec.structs.replace(
        subscription,
        state=SubscriptionState.DELETED,
        token=new_token(),
        token_expires_at=now + TOKEN_SECONDS,
    )
    subscriptions.update_record(connection, deleted)
    return deleted


def _post(
    call: RequestContext,
    connection: Connection,
    subscription: SubscriptionRecord,
    kind: PostKind,
    text: str,
) -> None:
    if topics.get(connection, subscription.topic_arn) is None:
        return
    now = call.clock.now()
    renewed = msgspec.structs.replace(subscription, token_expires_at=now + TOKEN_SECONDS)
    subscriptions.update_record(connection, renewed)
    notice = Notice(
        message_id=str(uuid.uuid4()),
        topic_arn=subscription.topic_arn,
        message=text,
        published_at=now,
    )
    deliveries.add(connection, notice, [subscription.arn], kind)


LINKED = frozenset((("sns", "ConfirmSubscription"), ("sns", "Unsubscribe")))
"""the only operations that unsigned requests may call, by service and name"""


def looks_like_link(request: Request) -> bool:
    """Tells whether an unsigned request looks like one of our links. `wire.match` finds the
    operation, which must be in `LINKED`."""
    return (
        request.method == "GET"
        and request.raw_path == "/"
        and "transfer-encoding" not in request.headers
        and request.headers.get("content-length", "0") == "0"
        and signing_of(request) is Signing.NOWHERE
        and any(name == "Action" for name, _ in parameters_of(request.raw_query))
    )
