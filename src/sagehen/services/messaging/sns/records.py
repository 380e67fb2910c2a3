"""Records of SNS."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from sagehen.base.errors import Invalid
from sagehen.services.messaging.message_attributes import MessageAttribute
from sagehen.services.messaging.outbox.destinations import OutboxMessage

__all__ = [
    "Notice",
    "PostKind",
    "SubscriptionRecord",
    "SubscriptionState",
    "TopicRecord",
]


class Notice(OutboxMessage, frozen=True, kw_only=True):
    """A published message."""

    topic_arn: str
    message: str
    subject: str | None = None
    structure: str | None = None
    """`json` if `message` has a text per protocol"""
    attributes: Mapping[str, MessageAttribute] = msgspec.field(default_factory=dict)
    group_id: str | None = None
    """MessageGroupId, which queues pass on"""
    trace_header: str | None = None
    """X-Amzn-Trace-Id"""

    def text_for(self, protocol: str) -> str:
        """Returns the text for a protocol; raises Invalid for malformed `json`."""
        if self.structure != "json":
            return self.message
        try:
            entries = msgspec.json.decode(self.message)
        except (msgspec.DecodeError, RecursionError):
            raise Invalid("Message Structure - JSON message body failed to parse") from None
        items = entries.items() if isinstance(entries, dict) else ()
        texts = {key: text for key, text in items if isinstance(text, str)}
        if "default" not in texts:
            raise Invalid("Message Structure - No default entry in JSON message body")
        return texts.get(protocol) or texts["default"]


class TopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Times are seconds since the epoch."""

    arn: str
    created_at: float
    attributes: dict[str, str]
    """set by the owner"""

    @property
    def name(self) -> str:
        return self.arn.rpartition(":")[2]

    @property
    def signature_version(self) -> str:
        """Returns `1` for SHA-1, SNS's default, or `2` for SHA-256."""
        return self.attributes.get("SignatureVersion", "1")


class SubscriptionState(StrEnum):
    PENDING = "PENDING"
    """receives only a confirmation request"""
    CONFIRMED = "CONFIRMED"
    DELETED = "DELETED"
    """kept while its token may restore it"""


class SubscriptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription to a topic."""

    arn: str
    topic_arn: str
    protocol: str
    endpoint: str
    """URL, mail address or queue ARN"""
    state: SubscriptionState
    created_at: float
    attributes: dict[str, str]
    """set by the owner"""
    token: str
    token_expires_at: float
    confirmed_by_owner: bool = False
    """ConfirmationWasAuthenticated"""
    authenticate_on_unsubscribe: bool = False
    """unsigned links cannot unsubscribe"""


class PostKind(StrEnum):
    """The Type of a posted message."""

    NOTIFICATION = "Notification"
    SUBSCRIPTION_CONFIRMATION = "SubscriptionConfirmation"
    UNSUBSCRIBE_CONFIRMATION = "UnsubscribeConfirmation"
