"""Subscriptions as destinations of the outbox, by HTTP, webhook and e-mail."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from sagehen.services.messaging.outbox.destinations import (
    Delivery,
    DeliveryResult,
    Destination,
    HttpRequest,
    Mail,
)
from sagehen.services.messaging.sns import subscription_store as subscriptions
from sagehen.services.messaging.sns import topic_store as topics
from sagehen.services.messaging.sns.delivery_policy import (
    DEFAULT_CONTENT_TYPE,
    MAIL_DELAYS,
    DeliveryPolicy,
    HealthyRetryPolicy,
    effective_policy,
)
from sagehen.services.messaging.sns.envelopes import Envelope, Links, enclose
from sagehen.services.messaging.sns.records import (
    Notice,
    PostKind,
    SubscriptionRecord,
    TopicRecord,
)
from sagehen.services.messaging.webhooks import WEBHOOK_DELAYS, webhook_request

__all__ = ["Seal", "SubscriptionDestination", "SubscriptionResolver"]

USER_AGENT = "Amazon Simple Notification Service Agent"
"""some receivers check for it"""
DEFAULT_SUBJECT = "AWS Notification Message"
CONFIRMATION_SUBJECT = "AWS Notification - Subscription Confirmation"

Seal = Callable[[Envelope], str]
"""makes an envelope signed JSON"""


class SubscriptionResolver:
    """Finds the destination of a subscription's ARN."""

    def __init__(self, seal: Seal, links: Links) -> None:
        self._seal = seal
        self._links = links

    def __call__(self, connection: Connection, address: str) -> "SubscriptionDestination | None":
        subscription = subscriptions.get(connection, address)
        if subscription is None:
            return None
        topic = topics.get(connection, subscription.topic_arn)
        if topic is None:
            return None
        policy = effective_policy(
            topic.attributes.get("DeliveryPolicy"), subscription.attributes.get("DeliveryPolicy")
        )
        return SubscriptionDestination(
            address=address,
            endpoint=subscription.endpoint,
            retry_delays=_retry_delays(subscription.protocol, policy),
            max_per_second=policy.max_per_second,
            subscription=subscription,
            topic=topic,
            policy=policy,
            seal=self._seal,
            links=self._links,
        )


def _retry_delays(protocol: str, policy: DeliveryPolicy) -> Sequence[float]:
    if protocol.startswith("email"):
        return MAIL_DELAYS
    if policy.retries is not None:
        return policy.retries.delays()
    return WEBHOOK_DELAYS if protocol == "webhook" else HealthyRetryPolicy().delays()


@dataclass(frozen=True, kw_only=True)
class SubscriptionDestination(Destination):
    """A confirmed subscription, or one that is asked to confirm."""

    subscription: SubscriptionRecord = field(repr=False)
    """has the signing secret and the token"""
    topic: TopicRecord
    policy: DeliveryPolicy
    seal: Seal
    links: Links

    def compose(self, delivery: Delivery, now: float) -> HttpRequest | Mail:
        notice, kind = delivery.read(Notice), PostKind(delivery.kind)
        match self.subscription.protocol:
            case "http" | "https":
                return self._http_request(notice, kind)
            case "webhook":
                return self._webhook_request(notice, now)
            case "email" | "email-json":
                message_id = f"{notice.message_id}.{delivery.delivery_id}"
                return self._mail(notice, kind, message_id)
            case protocol:
                raise ValueError(f"The outbox does not deliver by {protocol}.")

    def dead_letter(
        self, connection: Connection, delivery: Delivery, reason: str, retries_exhausted: bool
    ) -> None:
        """Confirmation requests are not kept."""
        if delivery.kind == PostKind.NOTIFICATION:
            notice = delivery.read(Notice)
            topics.put_dead_letter(
                connection, self.subscription, notice, self.topic.signature_version
            )

    def _http_request(self, notice: Notice, kind: PostKind) -> HttpRequest:
        subscription = self.subscription
        is_raw = (
            kind is PostKind.NOTIFICATION
            and subscription.attributes.get("RawMessageDelivery") == "true"
        )
        headers = {
            "Content-Type": self.policy.content_type or DEFAULT_CONTENT_TYPE,
            "User-Agent": USER_AGENT,
            "x-amz-sns-message-type": str(kind),
            "x-amz-sns-message-id": notice.message_id,
            "x-amz-sns-topic-arn": subscription.topic_arn,
        }
        if kind is not PostKind.SUBSCRIPTION_CONFIRMATION:
            headers["x-amz-sns-subscription-arn"] = subscription.arn
        if notice.trace_header is not None:
            headers["X-Amzn-Trace-Id"] = notice.trace_header
        if is_raw:
            headers["x-amz-sns-rawdelivery"] = "true"
            text = notice.text_for(subscription.protocol)
        else:
            text = self.seal(self._envelope(notice, kind))
        return HttpRequest(
            url=self.endpoint, headers=headers, body=text.encode(), result_of=_result_of
        )

    def _webhook_request(self, notice: Notice, now: float) -> HttpRequest:
        return webhook_request(
            self.endpoint,
            self.subscription.attributes["WebhookSecret"],
            notice.message_id,
            notice.text_for(self.subscription.protocol),
            now,
            content_type=self.policy.content_type or "application/json",
        )

    def _mail(self, notice: Notice, kind: PostKind, message_id: str) -> Mail:
        subject = CONFIRMATION_SUBJECT
        if kind is not PostKind.NOTIFICATION:
            text = self._confirmation()
        else:
            subject = notice.subject or DEFAULT_SUBJECT
            if self.subscription.protocol == "email-json":
                text = self.seal(self._envelope(notice, kind))
            else:
                text = self._letter(notice)
        return Mail(
            recipient=self.endpoint,
            sender_name=self.topic.attributes.get("DisplayName", ""),
            subject=subject,
            text=text,
            message_id=message_id,
        )

    def _envelope(self, notice: Notice, kind: PostKind) -> Envelope:
        subscription, version = self.subscription, self.topic.signature_version
        if kind is PostKind.NOTIFICATION:
            return enclose(notice, subscription.arn, subscription.protocol, version)
        return Envelope(
            kind=kind,
            message_id=notice.message_id,
            topic_arn=subscription.topic_arn,
            subscription_arn=subscription.arn,
            message=notice.message,
            published_at=notice.published_at,
            signature_version=version,
            token=subscription.token,
        )

    def _letter(self, notice: Notice) -> str:
        link = self.links.unsubscribe(self.subscription.arn)
        return (
            f"{notice.text_for('email')}\n\n--\n"
            "If you wish to stop receiving notifications from this topic, please click or visit "
            f"the link below to unsubscribe:\n{link}\n\nPlease do not reply directly to this email."
        )

    def _confirmation(self) -> str:
        topic_arn = self.subscription.topic_arn
        link = self.links.subscribe(topic_arn, self.subscription.token)
        return (
            f"You have chosen to subscribe to the topic:\n{topic_arn}\n\n"
            "To confirm this subscription, click or visit the link below (If this was in error no "
            f"action is necessary):\n{link}\n\nPlease do not reply directly to this email."
        )


def _result_of(status: int) -> DeliveryResult:
    """A 4xx is final for SNS; so is a redirect here."""
    if 200 <= status < 300:
        return DeliveryResult.ACCEPTED
    return DeliveryResult.REFUSED if 300 <= status < 500 else DeliveryResult.FAILED
