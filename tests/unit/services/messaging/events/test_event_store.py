"""Events go on their way when, and only when, their transaction is. With either database."""

import json
import uuid
from contextlib import suppress
from typing import Any

import pytest

from sagehen.services.messaging.events import (
    rule_store as event_rules,
)
from sagehen.services.messaging.events import (
    target_store as event_targets,
)
from sagehen.services.messaging.events.deliveries import EventMessage, resolve_target
from sagehen.services.messaging.events.event_store import put_event
from sagehen.services.messaging.events.records import (
    DISABLED,
    ENABLED,
    Event,
    RuleRecord,
    TargetRecord,
    target_address,
)
from sagehen.services.messaging.outbox import store as deliveries
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

QUEUE = "arn:aws:sqs:us-east-1:000000000000:queue"
TOPIC = "arn:aws:sns:us-east-1:000000000000:topic"
HOOK = "https://host/hook"
EVENT = Event(
    event_id="id-1",
    source="aws.sagemaker",
    detail_type="SageMaker Training Job State Change",
    account="000000000000",
    region="us-east-1",
    happened_at=100,
    detail={"TrainingJobStatus": "Completed"},
)


@pytest.fixture
def state(any_database: Database) -> Database:
    record = QueueRecord(
        name="queue", queue_id=uuid.uuid4().hex, created_at=1, modified_at=1, attributes={}
    )
    with any_database.write() as connection:
        queues.insert(connection, record)
    return any_database


def make_rule(
    database: Database, name: str, pattern: Any, *targets: str, state: str = ENABLED
) -> RuleRecord:
    arn = f"arn:aws:events:us-east-1:000000000000:rule/{name}"
    rule = RuleRecord(
        name=name, arn=arn, state=state, event_pattern=json.dumps(pattern), created_at=1
    )
    with database.write() as connection:
        event_rules.put(connection, rule)
        for number, target in enumerate(targets):
            record = TargetRecord(
                rule_name=name,
                target_id=str(number),
                target_arn=target,
                definition={"Id": str(number), "Arn": target},
                secret="whsec_x" if target == HOOK else None,
            )
            event_targets.put(connection, record)
    return rule


def put(database: Database, event: Event = EVENT) -> None:
    with database.write() as connection:
        put_event(connection, event)


def received(database: Database) -> list[QueueMessage]:
    with database.write() as connection:
        queue = queues.get(connection, "queue")
        assert queue is not None
        return messages.receive(connection, queue, 10, 60, now=1000)


def test_a_pattern_of_an_earlier_version_matches_although_it_is_too_complex(
    state: Database,
) -> None:
    make_rule(state, "a", {"source": [{"wildcard": "*a*a*a*a*a*a*s.*"}, "aws.sagemaker"]}, QUEUE)
    put(state)
    assert len(received(state)) == 1


def test_all_matching_rules_send_it(state: Database) -> None:
    make_rule(state, "a", {"source": ["aws.sagemaker"]}, QUEUE)
    make_rule(state, "b", {"detail": {"TrainingJobStatus": [{"prefix": "C"}]}}, QUEUE, QUEUE)
    make_rule(state, "c", {"source": ["other"]}, QUEUE)
    make_rule(state, "d", {"source": ["aws.sagemaker"]}, QUEUE, state=DISABLED)
    put(state)
    found = received(state)
    assert [json.loads(one.body)["id"] for one in found] == ["id-1"] * 3


def test_what_is_rolled_back_never_was(state: Database) -> None:
    rule = make_rule(state, "a", {"source": ["aws.sagemaker"]}, QUEUE, HOOK)
    with suppress(ZeroDivisionError), state.write() as connection:
        put_event(connection, EVENT)
        raise ZeroDivisionError
    assert received(state) == []
    with state.read() as connection:
        assert deliveries.due(connection, target_address(rule, "1"), 1000, 10) == []


def test_a_topic_fans_it_out_and_a_mail_reads_well(state: Database) -> None:
    make_rule(state, "a", {"source": ["aws.sagemaker"]}, TOPIC)
    subscription = SubscriptionRecord(
        arn=f"{TOPIC}:1",
        topic_arn=TOPIC,
        protocol="email",
        endpoint="a@example.org",
        state=SubscriptionState.CONFIRMED,
        created_at=1,
        attributes={},
        token="t",
        token_expires_at=100,
    )
    with state.write() as connection:
        topics.insert(connection, TopicRecord(arn=TOPIC, created_at=1, attributes={}))
        subscriptions.insert(connection, subscription)
    put(state)
    with state.read() as connection:
        (delivery,) = deliveries.due(connection, subscription.arn, 1000, 10)
    assert '\n  "id": "id-1",\n' in delivery.read(Notice).text_for("email")
    assert json.loads(delivery.read(Notice).text_for("http")) == EVENT.envelope()
    assert "\n" not in delivery.read(Notice).text_for("http")


def test_a_webhook_is_a_delivery_that_goes_with_its_target(state: Database) -> None:
    rule = make_rule(state, "a", {"source": ["aws.sagemaker"]}, HOOK)
    put(state)
    address = target_address(rule, "0")
    with state.read() as connection:
        (delivery,) = deliveries.due(connection, address, 1000, 10)
        found = resolve_target(connection, address)
    assert json.loads(delivery.read(EventMessage).texts.input) == EVENT.envelope()
    assert found is not None
    assert (found.endpoint, found.method, found.rule_arn) == (HOOK, None, rule.arn)
    with state.write() as connection:
        assert event_targets.remove(connection, rule, ["0", "none"]) == ["none"]
        assert deliveries.due(connection, address, 1000, 10) == []
        assert resolve_target(connection, address) is None


def test_a_target_that_is_gone_holds_up_no_other(
    state: Database, caplog: pytest.LogCaptureFixture
) -> None:
    make_rule(state, "a", {"source": ["aws.sagemaker"]}, f"{QUEUE}-gone", TOPIC, QUEUE)
    put(state)
    assert len(received(state)) == 1
    assert [record.message for record in caplog.records] == ["An event found its target gone."] * 2


def test_it_is_due_when_it_was_put(state: Database) -> None:
    rule = make_rule(state, "a", {"source": ["aws.sagemaker"]}, HOOK)
    later = Event(**{name: getattr(EVENT, name) for name in EVENT.__struct_fields__[:-1]}, put_at=7)
    put(state, later)
    with state.read() as connection:
        (delivery,) = deliveries.due(connection, target_address(rule, "0"), 7, 10)
    assert delivery.due_at == 7


def test_rules_are_replaced_and_listed(state: Database) -> None:
    for name in ("b", "a", "B"):
        make_rule(state, name, {"source": ["x"]}, QUEUE)
    make_rule(state, "a", {"source": ["y"]}, state=DISABLED)
    with state.write() as connection:
        assert event_rules.count(connection) == 3
        replaced = event_rules.get(connection, "a")
        assert replaced is not None
        assert (replaced.state, replaced.event_pattern) == (DISABLED, '{"source": ["y"]}')
        assert [one.name for one in event_rules.page(connection, "b", "", 10)] == ["b"]
        assert event_targets.count(connection, "a") == 1
        names = event_targets.rules_of(connection, QUEUE, "", 10)
        assert sorted(names) == ["B", "a", "b"]
        assert not event_rules.set_state(connection, "none", ENABLED)
