"""Topics, who subscribes to them, and what is on its way to a subscriber."""

from enum import StrEnum

import msgspec

from sagehen.domain.notices import Notice

__all__ = [
    "Delivery",
    "PostKind",
    "SubscriptionRecord",
    "SubscriptionState",
    "TopicRecord",
]


class TopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A topic. Times are seconds since the epoch."""

    arn: str
    created_at: float
    attributes: dict[str, str]
    """Those that its owner set, by SNS's names."""

    @property
    def name(self) -> str:
        return self.arn.rpartition(":")[2]

    @property
    def signature_version(self) -> str:
        """`1` is SHA-1, SNS's default; `2` is SHA-256."""
        return self.attributes.get("SignatureVersion", "1")


class SubscriptionState(StrEnum):
    PENDING = "PENDING"
    """It gets nothing but its confirmation until that is answered."""
    CONFIRMED = "CONFIRMED"
    DELETED = "DELETED"
    """Kept as long as its token may bring it back."""


class SubscriptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who gets a topic's messages, and how."""

    arn: str
    topic_arn: str
    protocol: str
    endpoint: str
    """A URL, an address, or a queue's ARN."""
    state: SubscriptionState
    created_at: float
    attributes: dict[str, str]
    """Those that its owner set, by SNS's names."""
    token: str
    """Who sends it confirms the subscription."""
    token_expires_at: float
    confirmed_by_owner: bool = False
    """ConfirmationWasAuthenticated."""
    authenticate_on_unsubscribe: bool = False
    """The link in a message does not unsubscribe it."""


class PostKind(StrEnum):
    """What SNS calls the Type of what it posts."""

    NOTIFICATION = "Notification"
    SUBSCRIPTION_CONFIRMATION = "SubscriptionConfirmation"
    UNSUBSCRIBE_CONFIRMATION = "UnsubscribeConfirmation"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A notice on its way to one subscriber."""

    delivery_id: int
    subscription_arn: str
    kind: PostKind
    notice: Notice
    notice_id: int
    attempts: int
    """Made so far."""
    due_at: float
    """When the next is to be made."""
