"""A plain destination, and deliveries to it, for tests of the outbox."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.services.messaging.outbox.destinations import (
    Delivery,
    DeliveryResult,
    Destination,
    HttpRequest,
    OutboxMessage,
)

ADDRESS = "arn:aws:test:us-east-1:000000000000:a"


@dataclass(frozen=True, kw_only=True)
class PlainDestination(Destination):
    """Posts nothing, and remembers its dead letters."""

    address: str = ADDRESS
    endpoint: str = "http://host/"
    letters: list[tuple[str, str, bool]] = field(default_factory=list)
    """message id, reason, and whether the retries were exhausted"""

    def compose(self, delivery: Delivery, now: float) -> HttpRequest:
        return HttpRequest(
            url=self.endpoint, body=b"", result_of=lambda status: DeliveryResult.ACCEPTED
        )

    def dead_letter(
        self, connection: Connection, delivery: Delivery, reason: str, retries_exhausted: bool
    ) -> None:
        self.letters.append((delivery.message.message_id, reason, retries_exhausted))


def make_delivery(message: OutboxMessage, kind: str = "", **fields: Any) -> Delivery:
    values: Mapping[str, Any] = {
        "delivery_id": 1,
        "address": ADDRESS,
        "kind": kind,
        "message": message,
        "content": msgspec.json.encode(message),
        "notice_id": 1,
        "attempts": 0,
        "due_at": message.published_at,
        **fields,
    }
    return Delivery(**values)
