"""A delivery attempt and its result."""

from enum import StrEnum

import msgspec

from sagehen.services.messaging.outbox.retry_policy import DeliveryPolicy, effective_policy
from sagehen.services.messaging.sns.records import Delivery, SubscriptionRecord, TopicRecord

__all__ = ["DeliveryAttempt", "DeliveryResult", "ReceiverAnswer"]


class DeliveryResult(StrEnum):
    ACCEPTED = "ACCEPTED"
    REFUSED = "REFUSED"
    """final"""
    FAILED = "FAILED"
    """may succeed on a retry"""


class ReceiverAnswer(msgspec.Struct, frozen=True):
    """A result and its reason."""

    verdict: DeliveryResult
    why: str = ""


class DeliveryAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery and its receiver."""

    delivery: Delivery
    subscription: SubscriptionRecord
    topic: TopicRecord

    @property
    def policy(self) -> DeliveryPolicy:
        return effective_policy(
            self.topic.attributes.get("DeliveryPolicy"),
            self.subscription.attributes.get("DeliveryPolicy"),
        )
