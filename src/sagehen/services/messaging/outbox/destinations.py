"""A delivery as the outbox handles it: message, destination, and the result of an attempt.

A service stores its own kind of `OutboxMessage`, and hands in a `Resolve` that finds the
`Destination` of an address. A destination makes the HTTP request or the mail, and puts deliveries
that were given up where they are to be kept.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from sqlalchemy import Connection

__all__ = [
    "Delivery",
    "DeliveryAttempt",
    "DeliveryResult",
    "Destination",
    "HttpRequest",
    "Mail",
    "OutboxMessage",
    "ReceiverAnswer",
    "Resolve",
]


class OutboxMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that every stored message has; each service adds its own."""

    message_id: str
    """same on every delivery and retry, so receivers can detect duplicates"""
    published_at: float
    """seconds since the epoch"""
    dimensions: Mapping[str, str] = msgspec.field(default_factory=dict)
    """of the NotificationFailures metric; if empty, failed deliveries are not counted"""


MessageT = TypeVar("MessageT", bound=OutboxMessage)


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A message to be delivered to one address."""

    delivery_id: int
    address: str
    """ARN that a service resolves to a destination"""
    kind: str
    """chosen by the service that added the delivery"""
    message: OutboxMessage
    content: bytes
    """the whole message as JSON"""
    notice_id: int
    attempts: int
    """made so far"""
    due_at: float

    def read(self, message_type: type[MessageT]) -> MessageT:
        """Returns the whole message."""
        return msgspec.json.decode(self.content, type=message_type)


class DeliveryResult(StrEnum):
    ACCEPTED = "ACCEPTED"
    REFUSED = "REFUSED"
    """final"""
    FAILED = "FAILED"
    """may succeed on a retry"""


class ReceiverAnswer(msgspec.Struct, frozen=True):
    """A result and its reason."""

    result: DeliveryResult
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """A delivery by HTTP."""

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes
    result_of: Callable[[int], DeliveryResult]
    """from the status of the answer"""


@dataclass(frozen=True, kw_only=True)
class Mail:
    """A delivery by e-mail."""

    recipient: str
    sender_name: str = ""
    """shown with the sender's address, if not empty"""
    subject: str
    text: str
    message_id: str
    """same on every attempt, so receivers can detect duplicates; without the domain"""


@dataclass(frozen=True, kw_only=True)
class Destination(ABC):
    """Where the deliveries to one address go, and how often they are tried."""

    address: str
    endpoint: str = field(repr=False)
    """URL or mail address; may contain secrets"""
    retry_delays: Sequence[float]
    """seconds before each retry"""
    max_age_seconds: float = math.inf
    """no retry later than this after publication"""
    max_per_second: int | None = None

    @abstractmethod
    def compose(self, delivery: Delivery, now: float) -> HttpRequest | Mail:
        """`now` is the time of this attempt. Runs in a thread: signing takes long."""

    @abstractmethod
    def dead_letter(
        self, connection: Connection, delivery: Delivery, reason: str, retries_exhausted: bool
    ) -> None:
        """Keeps a delivery that was given up, in the transaction that removes it."""

    @property
    def receiver(self) -> str:
        """Returns what one hanging delivery may block: a host and port, or the mail server."""
        parts = urlsplit(self.endpoint)
        if parts.hostname is None:
            return "mail"
        return f"{parts.scheme}://{parts.hostname}:{parts.port or ''}"


class DeliveryAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery and where it goes."""

    delivery: Delivery
    destination: Destination


Resolve = Callable[[Connection, str], Destination | None]
"""returns the destination of an address; None if any part of it is gone"""
