"""When a delivery is tried again, and how much is on its way at once."""

import json
import random

from sagehen.services.messaging.outbox.attempts import DeliveryAttempt
from sagehen.services.messaging.outbox.outbox import next_delay
from sagehen.services.messaging.outbox.receivers import Receivers, Throttle, receiver_of
from sagehen.services.messaging.sns.records import (
    Delivery,
    Notice,
    PostKind,
    SubscriptionRecord,
    SubscriptionState,
    TopicRecord,
)


def subscription(protocol: str, endpoint: str, **attributes: str) -> SubscriptionRecord:
    return SubscriptionRecord(
        arn="s",
        topic_arn="t",
        protocol=protocol,
        endpoint=endpoint,
        state=SubscriptionState.CONFIRMED,
        created_at=0,
        attributes=attributes,
        token="",
        token_expires_at=0,
    )


def delays(protocol: str, **attributes: str) -> list[float]:
    """Of all attempts, until there is no further one."""
    found: list[float] = []
    to = subscription(protocol, "http://host/", **attributes)
    while True:
        delivery = Delivery(
            delivery_id=1,
            subscription_arn="s",
            kind=PostKind.NOTIFICATION,
            notice=Notice(message_id="m", topic_arn="t", message="", published_at=0),
            notice_id=1,
            attempts=len(found),
            due_at=0,
        )
        topic = TopicRecord(arn="t", created_at=0, attributes={})
        parcel = DeliveryAttempt(delivery=delivery, subscription=to, topic=topic)
        delay = next_delay(parcel, random.Random(5), 0)
        if delay is None:
            return found
        found.append(delay)


def test_three_times_after_some_twenty_seconds() -> None:
    found = delays("http")
    assert len(found) == 3
    assert all(18 <= one <= 22 for one in found)
    assert found[0] != 20  # Left to chance in part.


def test_each_protocol_has_its_own_schedule() -> None:
    assert len(delays("email")) == len(delays("email-json")) == 50
    assert len(delays("webhook")) == 9
    policy = json.dumps({"healthyRetryPolicy": {"numRetries": 2, "numNoDelayRetries": 2}})
    assert delays("https", DeliveryPolicy=policy) == [0, 0]
    assert delays("webhook", DeliveryPolicy=policy) == [0, 0]
    none = json.dumps({"healthyRetryPolicy": {"numRetries": 0}})
    assert delays("http", DeliveryPolicy=none) == []


def test_receivers_are_hosts_not_paths() -> None:
    assert receiver_of(subscription("http", "http://Host:1/a")) == "http://host:1"
    assert receiver_of(subscription("webhook", "http://user:p@host:1/b?c")) == "http://host:1"
    assert receiver_of(subscription("https", "https://host/a")) == "https://host:"
    assert receiver_of(subscription("email", "a@b")) == receiver_of(
        subscription("email-json", "c@d")
    )


def test_room_for_each_and_for_all() -> None:
    receivers = Receivers(most=5, most_each=4)
    for subscription_arn in ("x", "x", "x", "y"):
        receivers.begin("a", subscription_arn)
    assert (receivers.room("a", "z"), receivers.room("b", "z")) == (0, 1)
    receivers.begin("b", "z")
    assert receivers.is_full
    receivers.end("b", "z")
    receivers.end("a", "y")
    assert receivers.room("a", "x") == 0, "one subscription never has all"
    assert (receivers.room("a", "y"), receivers.room("b", "z")) == (1, 2)


def test_a_throttle_saves_a_second_s_worth() -> None:
    throttle = Throttle()
    assert throttle.allows("s", None, now=0) is None
    assert throttle.allows("s", 5, now=0) == 5
    for _ in range(5):
        throttle.use("s", 5, now=0)
    assert throttle.allows("s", 5, now=0) == 0
    assert throttle.allows("s", 5, now=0.4) == 2
    assert throttle.allows("s", 5, now=100) == 5
    throttle.forget(set())
    assert throttle.allows("s", 5, now=0) == 5


def test_events_are_tried_185_times_within_a_day() -> None:
    told = {"MaximumRetryAttempts": "185", "MaximumEventAgeInSeconds": "1e9"}
    found = delays("event", **told)
    assert len(found) == 185
    assert 0.9 <= found[0] <= 1.1
    assert 0.85 * 86_400 < sum(found) < 1.15 * 86_400
    assert len(delays("event", **{**told, "MaximumRetryAttempts": "3"})) == 3
    assert delays("event", **{**told, "MaximumRetryAttempts": "0"}) == []


def test_an_event_that_would_be_too_old_is_not_tried_again() -> None:
    told = {"MaximumRetryAttempts": "185", "MaximumEventAgeInSeconds": "60"}
    # By this test's clock no time passes: the first delay beyond a minute is one too many.
    assert 6 <= len(delays("event", **told)) <= 7
