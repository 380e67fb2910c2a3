"""What is delivered, and what came of an attempt to."""

from enum import StrEnum

import msgspec

from sagehen.services.messaging.outbox.retry_policy import DeliveryPolicy, effective_policy
from sagehen.services.messaging.sns.records import Delivery, SubscriptionRecord, TopicRecord

__all__ = ["DeliveryAttempt", "DeliveryResult", "ReceiverAnswer"]


class DeliveryResult(StrEnum):
    ACCEPTED = "ACCEPTED"
    REFUSED = "REFUSED"
    """For good: the receiver does not want it."""
    FAILED = "FAILED"
    """It may go well another time."""


class ReceiverAnswer(msgspec.Struct, frozen=True):
    """A verdict, and in a few words why."""

    verdict: DeliveryResult
    why: str = ""


class DeliveryAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery with all that is known of its receiver."""

    delivery: Delivery
    subscription: SubscriptionRecord
    topic: TopicRecord

    @property
    def policy(self) -> DeliveryPolicy:
        """What topic and subscription say of deliveries by HTTP."""
        return effective_policy(
            self.topic.attributes.get("DeliveryPolicy"),
            self.subscription.attributes.get("DeliveryPolicy"),
        )
