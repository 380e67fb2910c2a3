"""Topics, who subscribes to them, and what is on its way to a subscriber.

What is published to a topic.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from sagehen.base.errors import Invalid

__all__ = [
    "Delivery",
    "MessageAttribute",
    "Notice",
    "PostKind",
    "SubscriptionRecord",
    "SubscriptionState",
    "TopicRecord",
]


class MessageAttribute(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of SNS's: `data_type` is `String`, `String.Array`, `Number` or `Binary`."""

    data_type: str
    string_value: str | None = None
    binary_value: bytes | None = None


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A message to all who subscribe to a topic."""

    message_id: str
    """The same on every delivery and every retry: who gets it twice knows by this."""
    topic_arn: str
    message: str
    published_at: float
    """Seconds since the epoch."""
    subject: str | None = None
    structure: str | None = None
    """`json` where `message` is an object with a text for each protocol."""
    attributes: Mapping[str, MessageAttribute] = msgspec.field(default_factory=dict)
    dimensions: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Of the metric that counts a delivery given up (NotificationFailures); empty: none does."""

    def text_for(self, protocol: str) -> str:
        """The message as subscribers by `protocol` get it.

        Raises:
            Invalid: its structure is `json`, but it is no object of texts with a `default`.
        """
        if self.structure != "json":
            return self.message
        try:
            texts = msgspec.json.decode(self.message, type=dict[str, str])
            return texts.get(protocol) or texts["default"]
        except (msgspec.ValidationError, KeyError):
            raise Invalid("Message Structure - No default entry in JSON message body") from None
        except (msgspec.DecodeError, RecursionError):
            raise Invalid("Message Structure - JSON message body failed to parse") from None


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
