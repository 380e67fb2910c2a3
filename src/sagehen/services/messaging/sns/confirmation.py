"""ConfirmSubscription and Unsubscribe: by the owner, or by a link that only the endpoint got.

The links in messages: GET requests that nobody signs, and that only their receivers know.
"""

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


def new_token() -> str:
    return secrets.token_hex(32)


def ask_to_confirm(
    call: RequestContext, connection: Connection, subscription: SubscriptionRecord
) -> None:
    """Have the endpoint of a subscription asked to confirm it; its token lives from now on."""
    text = _SUBSCRIBED.format(topic=subscription.topic_arn)
    _post(call, connection, subscription, PostKind.SUBSCRIPTION_CONFIRMATION, text)


def confirm_subscription(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Confirm the subscription that the token was sent for; twice is once.

    The token of an UnsubscribeConfirmation brings a deleted subscription back.
    """
    with call.database.write() as connection:
        found = subscriptions.by_token(connection, params["Token"], lock=True)
        if found is None or found.topic_arn != params["TopicArn"]:
            raise invalid("Token")
        if found.state is SubscriptionState.CONFIRMED:
            return {"SubscriptionArn": found.arn}
        if found.token_expires_at <= call.clock.now():
            raise invalid("Token", "it has expired: subscribe again")
        same = subscriptions.find(connection, found.topic_arn, found.protocol, found.endpoint)
        if same is not None and same.arn != found.arn:
            # It was subscribed anew since it was deleted: that token, not this one, confirms it.
            raise invalid("Token", "the endpoint was subscribed again since")
        locked = params.get("AuthenticateOnUnsubscribe", "").lower() == "true"
        confirmed = msgspec.structs.replace(
            found,
            state=SubscriptionState.CONFIRMED,
            confirmed_by_owner=not call.by_link,
            authenticate_on_unsubscribe=locked and not call.by_link,
        )
        subscriptions.update_record(connection, confirmed)
    return {"SubscriptionArn": found.arn}


def unsubscribe(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Delete a subscription and what is on its way to it; none there is well."""
    arn = params["SubscriptionArn"]
    check_arn_length("SubscriptionArn", arn)
    with call.database.write() as connection:
        found = subscriptions.get(connection, arn, lock=True)
        if found is None or found.state is SubscriptionState.DELETED:
            return {}
        if call.by_link and found.authenticate_on_unsubscribe:
            raise AwsError("AuthorizationError", "Only the topic's owner may unsubscribe it")
        deleted = end_subscription(connection, found, call.clock.now())
        if found.protocol in ("http", "https") and found.state is SubscriptionState.CONFIRMED:
            text = _UNSUBSCRIBED.format(subscription=arn)
            _post(call, connection, deleted, PostKind.UNSUBSCRIBE_CONFIRMATION, text)
    return {}


def end_subscription(
    connection: Connection, found: SubscriptionRecord, now: float
) -> SubscriptionRecord:
    """Delete it with what is on its way to it; what is kept of it, as its token may bring it
    back."""
    deliveries.drop(connection, [found.arn])
    deleted = msgspec.structs.replace(
        found,
        state=SubscriptionState.DELETED,
        token=new_token(),
        token_expires_at=now + TOKEN_SECONDS,
    )
    subscriptions.update_record(connection, deleted)
    return deleted


def _post(
    call: RequestContext, connection: Connection, to: SubscriptionRecord, kind: PostKind, text: str
) -> None:
    if topics.get(connection, to.topic_arn) is None:
        return
    now = call.clock.now()
    renewed = msgspec.structs.replace(to, token_expires_at=now + TOKEN_SECONDS)
    subscriptions.update_record(connection, renewed)
    notice = Notice(
        message_id=str(uuid.uuid4()), topic_arn=to.topic_arn, message=text, published_at=now
    )
    deliveries.add(connection, notice, [to.arn], kind)


LINKED = frozenset((("sns", "ConfirmSubscription"), ("sns", "Unsubscribe")))
"""The operations, by service and name, that may be carried out for somebody who has not signed:
those of a SubscribeURL and an UnsubscribeURL. No other ever may."""


def looks_like_link(request: Request) -> bool:
    """Whether an unsigned request has the form of such a link.

    What it asks for is `wire.match`'s to say, and nothing is done unless that is in `LINKED`.
    """
    return (
        request.method == "GET"
        and request.raw_path == "/"
        and "transfer-encoding" not in request.headers
        and request.headers.get("content-length", "0") == "0"
        and signing_of(request) is Signing.NOWHERE
        and any(name == "Action" for name, _ in parameters_of(request.raw_query))
    )
