"""Which deliveries one hanging receiver may block, and what a delivery carries."""

import msgspec
import pytest

from sagehen.services.messaging.outbox.destinations import OutboxMessage
from support.deliveries import PlainDestination, make_delivery


class Letter(OutboxMessage, frozen=True, kw_only=True):
    text: str


@pytest.mark.parametrize(
    ("endpoint", "receiver"),
    [
        ("http://Host:1/a", "http://host:1"),
        ("http://user:p@host:1/b?c", "http://host:1"),
        ("https://host/a", "https://host:"),
        ("a@b", "mail"),
        ("c@d", "mail"),
    ],
)
def test_receivers_are_hosts_not_paths(endpoint: str, receiver: str) -> None:
    assert PlainDestination(endpoint=endpoint, retry_delays=()).receiver == receiver


def test_a_service_reads_its_own_message() -> None:
    letter = Letter(message_id="m", published_at=1, text="hello")
    delivery = make_delivery(letter)
    assert delivery.read(Letter) == letter
    assert delivery.read(OutboxMessage) == OutboxMessage(message_id="m", published_at=1)
    with pytest.raises(msgspec.ValidationError):
        make_delivery(OutboxMessage(message_id="m", published_at=1)).read(Letter)
