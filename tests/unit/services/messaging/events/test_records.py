"""Addresses of targets, and the form of events."""

import pytest

from sagehen.services.messaging.events.records import (
    Event,
    RuleRecord,
    read_target_address,
    target_address,
)

RULE = RuleRecord(
    name="r.1",
    arn="arn:aws:events:us-east-1:000000000000:rule/r.1",
    state="ENABLED",
    event_pattern="{}",
    created_at=1,
)
EVENT = Event(
    event_id="id",
    source="aws.sagemaker",
    detail_type="T",
    account="000000000000",
    region="us-east-1",
    happened_at=61,
)


def test_addresses_lead_back_to_the_target() -> None:
    address = target_address(RULE, "t_1")
    assert read_target_address(address) == ("r.1", "t_1")
    assert address.split(":")[2] == "events"


@pytest.mark.parametrize(("put_at", "sent_at"), [(None, 61), (70, 70), (0, 0)])
def test_an_event_is_sent_when_it_was_put(put_at: float | None, sent_at: float) -> None:
    fields = {name: getattr(EVENT, name) for name in EVENT.__struct_fields__[:-1]}
    event = Event(**fields, put_at=put_at)
    assert event.sent_at == sent_at
    assert event.envelope()["time"] == "1970-01-01T00:01:01Z"
