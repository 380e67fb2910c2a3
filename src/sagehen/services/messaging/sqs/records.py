"""Records of SQS."""

import re

import msgspec

from sagehen.services.messaging.message_attributes import MessageAttribute
from sagehen.services.messaging.sns.envelopes import Envelope

__all__ = [
    "MAX_VISIBILITY_SECONDS",
    "QUEUE_ARN",
    "DeadLetters",
    "MessageContent",
    "NewMessage",
    "QueueMessage",
    "QueueRecord",
]

MAX_VISIBILITY_SECONDS = 43_200
QUEUE_ARN = re.compile(r"arn:aws[a-z-]*:sqs:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,80}")
"""of a standard queue"""

_VISIBILITY_SECONDS = "30"
_RETENTION_SECONDS = str(4 * 24 * 3600)


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A RedrivePolicy; that of a subscription has no count."""

    dead_letter_target_arn: str
    max_receive_count: int | str | None = None


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Times are seconds since the epoch."""

    name: str
    queue_id: str
    created_at: float
    modified_at: float
    attributes: dict[str, str]
    """set by the owner"""

    @property
    def visibility_seconds(self) -> int:
        return int(self.attributes.get("VisibilityTimeout", _VISIBILITY_SECONDS))

    @property
    def retention_seconds(self) -> int:
        return int(self.attributes.get("MessageRetentionPeriod", _RETENTION_SECONDS))

    @property
    def delay_seconds(self) -> int:
        return int(self.attributes.get("DelaySeconds", "0"))

    @property
    def wait_seconds(self) -> int:
        return int(self.attributes.get("ReceiveMessageWaitTimeSeconds", "0"))

    @property
    def dead_letters(self) -> DeadLetters | None:
        policy = self.attributes.get("RedrivePolicy")
        return msgspec.json.decode(policy, type=DeadLetters) if policy else None


class MessageContent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Message data besides the body."""

    attributes: dict[str, MessageAttribute] = msgspec.field(default_factory=dict)
    envelope: Envelope | None = None
    """a topic's message: the body, signed on receipt"""
    trace_header: str | None = None
    group_id: str | None = None
    """MessageGroupId"""
    source_arn: str | None = None
    """DeadLetterQueueSourceArn"""
    earlier_receives: int = 0
    """from queues whose dead-letter queue this is; its own policy does not count them"""


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send."""

    message_id: str
    body: str = ""
    content: MessageContent = MessageContent()
    delay_seconds: int | None = None
    """None for the queue's default"""


class QueueMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A received message."""

    sequence: int
    message_id: str
    body: str
    content: MessageContent
    sent_at: float
    receives: int
    """including this one"""
    first_received_at: float
    receipt: str
    """new for each receiver"""
