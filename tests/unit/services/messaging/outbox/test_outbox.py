"""When a delivery is tried again, what becomes of one that was given up, and old deliveries."""

import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import text

from sagehen.services.messaging.events.deliveries import resolve_target
from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.outbox.destinations import (
    DeliveryAttempt,
    DeliveryResult,
    HttpRequest,
    OutboxMessage,
    ReceiverAnswer,
    Resolve,
)
from sagehen.services.messaging.outbox.outbox import DueDeliveries, Outbox, next_delay
from sagehen.services.messaging.sns.deliveries import SubscriptionResolver
from sagehen.services.messaging.sns.envelopes import Links
from sagehen.services.messaging.sqs import message_store as messages
from sagehen.services.messaging.sqs import queue_store as queues
from sagehen.services.messaging.sqs.records import QueueMessage
from sagehen.services.messaging.webhooks import new_secret
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit
from support.clock import HandClock
from support.deliveries import ADDRESS, PlainDestination, make_delivery

MESSAGE = OutboxMessage(message_id="m", published_at=0, dimensions={"EndpointName": "e"})
NO = ReceiverAnswer(DeliveryResult.REFUSED, "no")
FAILED = ReceiverAnswer(DeliveryResult.FAILED, "not now")

Recorded = list[tuple[str, Mapping[str, str], float]]


def delays(destination: PlainDestination) -> list[float]:
    """Of all attempts, until there is no further one."""
    found: list[float] = []
    while True:
        delivery = make_delivery(MESSAGE, attempts=len(found))
        attempt = DeliveryAttempt(delivery=delivery, destination=destination)
        delay = next_delay(attempt, random.Random(5), 0)
        if delay is None:
            return found
        found.append(delay)


def test_delays_are_left_to_chance_in_part() -> None:
    found = delays(PlainDestination(retry_delays=[20, 0]))
    assert len(found) == 2
    assert 18 <= found[0] <= 22
    assert found[0] != 20
    assert found[1] == 0


def test_a_message_that_would_be_too_old_is_not_tried_again() -> None:
    # No time passes here: the first delay beyond a minute is one too many.
    assert len(delays(PlainDestination(retry_delays=[30, 50, 70, 1], max_age_seconds=60))) == 2
    assert delays(PlainDestination(retry_delays=[30], max_age_seconds=0)) == []


@asynccontextmanager
async def opened(
    database: Database, resolvers: Mapping[str, Resolve], recorded: Recorded | None = None
) -> AsyncIterator[Outbox]:
    written: Recorded = [] if recorded is None else recorded
    writes = GroupCommit(database)

    def record(name: str, dimensions: Mapping[str, str], value: float) -> None:
        written.append((name, dimensions, value))

    yield Outbox(database, writes, HandClock(1000), record, random.Random(5), resolvers)
    writes.close()


async def take(outbox: Outbox, address: str = ADDRESS) -> DeliveryAttempt:
    due = await outbox.find_due(address, 1e9, 10, [])
    assert isinstance(due, DueDeliveries)
    return DeliveryAttempt(delivery=due.deliveries[0], destination=due.destination)


async def test_a_delivery_is_postponed_then_given_up(database: Database) -> None:
    destination = PlainDestination(retry_delays=[10])
    recorded: Recorded = []
    with database.write() as connection:
        deliveries.add(connection, MESSAGE, [ADDRESS], "k")
    async with opened(database, {"test": lambda *_: destination}, recorded) as outbox:
        await outbox.settle(await take(outbox), FAILED)
        due = await outbox.due_by_address()
        assert 1009 <= due[ADDRESS] <= 1011
        assert recorded == destination.letters == []
        await outbox.settle(await take(outbox), FAILED)
        assert await outbox.due_by_address() == {}
    assert destination.letters == [("m", "not now", True)]
    assert recorded == [("NotificationFailures", {"EndpointName": "e"}, 1)]


async def test_a_refusal_is_not_for_want_of_retries(database: Database) -> None:
    destination = PlainDestination(retry_delays=[10])
    with database.write() as connection:
        deliveries.add(connection, MESSAGE, [ADDRESS], "k")
    async with opened(database, {"test": lambda *_: destination}) as outbox:
        attempt = await take(outbox)
        await outbox.settle(attempt, NO)
        await outbox.settle(attempt, NO)
    assert destination.letters == [("m", "no", False)], "one letter, though settled twice"


async def test_an_attempt_that_ends_during_the_read_is_not_due_again(database: Database) -> None:
    # The read still sees the delivery, although its attempt is no longer running.
    running: dict[int, str] = {}

    def resolve(*_: object) -> PlainDestination:
        running.clear()
        return PlainDestination(retry_delays=[10])

    with database.write() as connection:
        deliveries.add(connection, MESSAGE, [ADDRESS], "k")
    async with opened(database, {"test": resolve}) as outbox:
        delivery = (await take(outbox)).delivery
        running[delivery.delivery_id] = "attempt"
        due = await outbox.find_due(ADDRESS, 1e9, 10, running)
    assert due is not None
    assert due.deliveries == []


async def test_excess_deliveries_of_an_address_are_given_up(database: Database) -> None:
    destination = PlainDestination(retry_delays=[])
    with database.write() as connection:
        for number in range(3):
            message = OutboxMessage(message_id=str(number), published_at=number)
            deliveries.add(connection, message, [ADDRESS], "k")
    async with opened(database, {"test": lambda *_: destination}) as outbox:
        assert await outbox.shed(1) == 2
        assert await outbox.shed(1) == 0
    assert sorted(destination.letters) == [
        ("1", "too many wait", False),
        ("2", "too many wait", False),
    ]


async def test_a_service_that_is_not_known_has_no_destination(database: Database) -> None:
    with database.write() as connection:
        deliveries.add(connection, MESSAGE, [ADDRESS], "k")
    async with opened(database, {}) as outbox:
        assert await outbox.find_due(ADDRESS, 1e9, 10, []) is None
        assert await outbox.shed(0) == 0
        await outbox.drop(ADDRESS)
        assert await outbox.due_by_address() == {}


TOPIC = "arn:aws:sns:us-east-1:000000000000:t"
SUBSCRIPTION = f"{TOPIC}:1"
TARGET = "arn:aws:events:us-east-1:000000000000:target/r/hook"
DEAD = "arn:aws:sqs:us-east-1:000000000000:dead"
OLD_NOTICE = (
    '{"message_id":"11111111-1111-4111-8111-111111111111",'
    '"topic_arn":"arn:aws:sns:us-east-1:000000000000:t","message":"hello","published_at":1000.0,'
    '"subject":"s","structure":null,'
    '"attributes":{"a":{"data_type":"String","string_value":"x"}},'
    '"dimensions":{"EndpointName":"e","VariantName":"v"}}'
)
OLD_EVENT = (
    '{"message_id":"524331bb-c4ee-5e69-be50-8f51d09554aa","topic_arn":"https://host/hook",'
    r'"message":"{\"default\":\"{\\\"my\\\": 1}\",\"dead-letter\":\"{\\\"id\\\":\\\"id-1\\\"}\"}",'
    '"published_at":1000,"subject":null,"structure":"json","attributes":{},"dimensions":{}}'
)


@pytest.fixture
def old_database(any_database: Database) -> Database:
    """Rows as earlier versions wrote them: a delivery of SNS waits, and one of EventBridge."""
    redrive = json.dumps({"deadLetterTargetArn": DEAD})
    subscription = json.dumps({"RedrivePolicy": redrive})
    target = json.dumps(
        {
            "Id": "hook",
            "Arn": "https://host/hook",
            "DeadLetterConfig": {"Arn": DEAD},
            "RetryPolicy": {"MaximumRetryAttempts": 2, "MaximumEventAgeInSeconds": 3600},
        }
    )
    rows: list[tuple[str, Mapping[str, Any]]] = [
        ("topics (arn, created_at, attributes) VALUES (:a, 1, :b)", {"a": TOPIC, "b": "{}"}),
        (
            "subscriptions VALUES (:a, 'k', :t, 'http', 'http://receiver/', 'CONFIRMED', 1, :b, "
            "'token', 1e9, :yes, :no)",
            {"a": SUBSCRIPTION, "t": TOPIC, "b": subscription, "yes": True, "no": False},
        ),
        (
            "event_rules (name, arn, state, event_pattern, created_at) VALUES "
            "('r', 'arn:aws:events:us-east-1:000000000000:rule/r', 'ENABLED', '{}', 1)",
            {},
        ),
        (
            "event_targets (rule_name, target_id, target_arn, definition, secret) VALUES "
            "('r', 'hook', 'https://host/hook', :b, :s)",
            {"b": target, "s": new_secret()},
        ),
        (
            "queues (name, queue_id, created_at, modified_at, attributes) VALUES "
            "('dead', 'q', 1, 1, '{}')",
            {},
        ),
        ("notices (notice_id, content) VALUES (1, :a)", {"a": OLD_NOTICE.encode()}),
        ("notices (notice_id, content) VALUES (2, :a)", {"a": OLD_EVENT.encode()}),
        (
            "deliveries (subscription_arn, notice_id, kind, attempts, due_at, delay_seconds) "
            "VALUES (:a, 1, 'Notification', 0, 1000, NULL)",
            {"a": SUBSCRIPTION},
        ),
        (
            "deliveries (subscription_arn, notice_id, kind, attempts, due_at, delay_seconds) "
            "VALUES (:a, 2, 'Notification', 1, 1000, 0)",
            {"a": TARGET},
        ),
    ]
    with any_database.write() as connection:
        for statement, values in rows:
            connection.execute(text(f"INSERT INTO {statement}"), values)
    return any_database


RESOLVERS: Mapping[str, Resolve] = {
    "sns": SubscriptionResolver(lambda envelope: envelope.message, Links("http://h", "/c")),
    "events": resolve_target,
}


async def test_deliveries_of_an_earlier_version_are_sent(old_database: Database) -> None:
    async with opened(old_database, RESOLVERS) as outbox:
        assert await outbox.due_by_address() == {SUBSCRIPTION: 1000, TARGET: 1000}
        notice, event = await take(outbox, SUBSCRIPTION), await take(outbox, TARGET)
        posted = notice.destination.compose(notice.delivery, 1000)
        called = event.destination.compose(event.delivery, 1000)
        for attempt in (notice, event):
            await outbox.settle(attempt, ReceiverAnswer(DeliveryResult.ACCEPTED))
        assert await outbox.due_by_address() == {}
    assert isinstance(posted, HttpRequest)
    assert (posted.url, posted.body) == ("http://receiver/", b"hello")
    assert posted.headers["x-amz-sns-message-id"] == "11111111-1111-4111-8111-111111111111"
    assert isinstance(called, HttpRequest)
    assert (called.url, called.body) == ("https://host/hook", b'{"my": 1}')
    assert called.headers["webhook-id"] == "524331bb-c4ee-5e69-be50-8f51d09554aa"


async def test_deliveries_of_an_earlier_version_keep_their_dead_letters(
    old_database: Database,
) -> None:
    recorded: Recorded = []
    async with opened(old_database, RESOLVERS, recorded) as outbox:
        await outbox.settle(await take(outbox, SUBSCRIPTION), NO)
        for _ in range(2):  # One of its two retries is left.
            await outbox.settle(await take(outbox, TARGET), FAILED)
    letters = {letter.body: letter for letter in _received(old_database)}
    assert recorded == [("NotificationFailures", {"EndpointName": "e", "VariantName": "v"}, 1)]
    envelope = letters[""].content.envelope
    assert envelope is not None
    assert envelope.message == "hello"
    reasons = letters['{"id":"id-1"}'].content.attributes
    assert reasons["EXHAUSTED_RETRY_CONDITION"].string_value == "MaximumRetryAttempts"
    assert reasons["RETRY_ATTEMPTS"].string_value == "2"


def _received(database: Database) -> list[QueueMessage]:
    with database.write() as connection:
        queue = queues.get(connection, "dead")
        assert queue is not None
        return messages.receive(connection, queue, 10, 0, 2000)
