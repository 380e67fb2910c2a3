"""Publishing: what a subscriber wants is on its way when, and only when, the transaction is.

With either database."""

import json
import uuid
from contextlib import suppress
from typing import Any

import pytest

from sagehen.base.errors import Invalid
from sagehen.services.messaging.message_attributes import MessageAttribute
from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.outbox.destinations import Delivery
from sagehen.services.messaging.sns import (
    subscription_store as subscriptions,
)
from sagehen.services.messaging.sns import (
    topic_store as topics,
)
from sagehen.services.messaging.sns.records import (
    Notice,
    SubscriptionRecord,
    SubscriptionState,
    TopicRecord,
)
from sagehen.services.messaging.sqs import message_store as messages
from sagehen.services.messaging.sqs import queue_store as queues
from sagehen.services.messaging.sqs.records import QueueMessage, QueueRecord
from sagehen.state.database import Database

TOPIC = "arn:aws:sns:us-east-1:000000000000:topic"
QUEUE = "arn:aws:sqs:us-east-1:000000000000:queue"


@pytest.fixture
def state(any_database: Database) -> Database:
    with any_database.write() as connection:
        topics.insert(connection, TopicRecord(arn=TOPIC, created_at=1, attributes={}))
    return any_database


def subscribe(
    database: Database,
    endpoint: str,
    protocol: str = "http",
    state: SubscriptionState = SubscriptionState.CONFIRMED,
    **attributes: str,
) -> str:
    arn = f"{TOPIC}:{uuid.uuid4()}"
    record = SubscriptionRecord(
        arn=arn,
        topic_arn=TOPIC,
        protocol=protocol,
        endpoint=endpoint,
        state=state,
        created_at=1,
        attributes=attributes,
        token=uuid.uuid4().hex,
        token_expires_at=100,
    )
    with database.write() as connection:
        assert subscriptions.insert(connection, record)
    return arn


def make_queue(database: Database, name: str = "queue") -> None:
    record = QueueRecord(
        name=name, queue_id=uuid.uuid4().hex, created_at=1, modified_at=1, attributes={}
    )
    with database.write() as connection:
        assert queues.insert(connection, record)


def notice(message: str = "hello", **more: Any) -> Notice:
    return Notice(message_id="m", topic_arn=TOPIC, message=message, published_at=10, **more)


def publish(database: Database, one: Notice) -> bool:
    with database.write() as connection:
        return topics.publish(connection, one)


def on_their_way(database: Database, arn: str, now: float = 10) -> list[Delivery]:
    with database.read() as connection:
        return deliveries.due(connection, arn, now, limit=10)


def in_queue(database: Database, name: str = "queue") -> list[QueueMessage]:
    with database.write() as connection:
        queue = queues.get(connection, name)
        assert queue is not None
        return messages.receive(connection, queue, 10, visibility_seconds=0, now=11)


def count(database: Database, table: str) -> int:
    with database.read() as connection:
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())


def test_who_is_confirmed_gets_it(state: Database) -> None:
    first, second = subscribe(state, "http://a"), subscribe(state, "http://b")
    pending = subscribe(state, "http://c", state=SubscriptionState.PENDING)
    gone = subscribe(state, "http://d", state=SubscriptionState.DELETED)
    assert publish(state, notice())
    for arn in (first, second):
        (delivery,) = on_their_way(state, arn)
        assert (delivery.read(Notice), delivery.attempts, delivery.due_at) == (notice(), 0, 10)
    assert on_their_way(state, pending) == on_their_way(state, gone) == []
    assert on_their_way(state, first, now=9.9) == []


def test_no_such_topic(state: Database) -> None:
    other = notice()
    assert not publish(state, Notice(**{**_fields(other), "topic_arn": TOPIC + "x"}))
    assert count(state, "notices") == 0


def _fields(one: Notice) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


def test_nobody_subscribed_is_well_and_keeps_nothing(state: Database) -> None:
    assert publish(state, notice())
    assert count(state, "notices") == count(state, "deliveries") == 0


def test_what_is_rolled_back_was_never_published(state: Database) -> None:
    arn = subscribe(state, "http://a")
    told: list[str] = []
    state.listen(deliveries.DELIVERIES_DUE, told.append)
    with suppress(ZeroDivisionError), state.write() as connection:
        topics.publish(connection, notice())
        raise ZeroDivisionError
    assert on_their_way(state, arn) == []
    assert told == []
    publish(state, notice())
    assert told == [""]


def test_filter_policies(state: Database) -> None:
    by_body = subscribe(
        state, "http://a", FilterPolicy='{"s": ["Failed"]}', FilterPolicyScope="MessageBody"
    )
    by_attribute = subscribe(state, "http://b", FilterPolicy='{"s": ["Failed"]}')
    publish(state, notice('{"s":"Failed"}'))
    publish(state, notice("x", attributes={"s": MessageAttribute("String", "Failed")}))
    assert [one.read(Notice).message for one in on_their_way(state, by_body)] == ['{"s":"Failed"}']
    assert [one.read(Notice).message for one in on_their_way(state, by_attribute)] == ["x"]


def test_queues_have_it_at_once(state: Database) -> None:
    make_queue(state)
    arn = subscribe(state, QUEUE, "sqs")
    told: list[str] = []
    state.listen(messages.MESSAGES_SENT, told.append)
    publish(state, notice(subject="s", attributes={"a": MessageAttribute("Binary", None, b"\0")}))
    assert told == ["queue"]
    assert count(state, "notices") == 0
    (message,) = in_queue(state)
    envelope = message.content.envelope
    assert envelope is not None
    assert (envelope.message_id, envelope.message, envelope.subject) == ("m", "hello", "s")
    assert envelope.subscription_arn == arn
    assert envelope.attributes == {"a": MessageAttribute("Binary", None, b"\0")}


def test_raw_messages_have_their_attributes(state: Database) -> None:
    make_queue(state)
    subscribe(state, QUEUE, "sqs", RawMessageDelivery="true")
    given = {"a": MessageAttribute("String", "x")}
    publish(state, notice("raw", attributes=given))
    (message,) = in_queue(state)
    assert (message.body, message.content.attributes) == ("raw", given)
    assert message.content.envelope is None


def test_a_queue_that_is_gone_or_cannot_take_it(state: Database) -> None:
    make_queue(state, "dead")
    policy = json.dumps({"deadLetterTargetArn": QUEUE.replace(":queue", ":dead")})
    subscribe(state, QUEUE, "sqs", RedrivePolicy=policy)
    assert publish(state, notice("to nobody"))
    (message,) = in_queue(state, "dead")
    assert message.content.envelope is not None
    assert message.content.envelope.message == "to nobody"


def test_too_many_attributes_for_a_raw_message(state: Database) -> None:
    make_queue(state)
    subscribe(state, QUEUE, "sqs", RawMessageDelivery="true")
    eleven = {str(n): MessageAttribute("String", "x") for n in range(11)}
    assert publish(state, notice("lost", attributes=eleven))
    assert in_queue(state) == []


def test_a_text_for_each_protocol(state: Database) -> None:
    make_queue(state)
    subscribe(state, QUEUE, "sqs", RawMessageDelivery="true")
    texts = '{"default": "all", "sqs": "queues"}'
    publish(state, notice(texts, structure="json"))
    (message,) = in_queue(state)
    assert message.body == "queues"
    for wrong in ('{"sqs": "x"}', "[]", "text", '{"default": 5}'):
        with pytest.raises(Invalid):
            publish(state, notice(wrong, structure="json"))


def test_a_deleted_topic_takes_its_deliveries_along(state: Database) -> None:
    subscribe(state, "http://a")
    publish(state, notice())
    with state.write() as connection:
        assert topics.delete(connection, TOPIC)
        assert not topics.delete(connection, TOPIC)
    assert count(state, "notices") == count(state, "deliveries") == count(state, "subscriptions")
    assert count(state, "notices") == 0
