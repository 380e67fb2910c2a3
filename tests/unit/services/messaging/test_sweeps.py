"""Sweeps: what has expired goes, and what has not stays."""

import random
from collections.abc import Iterator

import pytest

from sagehen.services.messaging.outbox.outbox import Outbox
from sagehen.services.messaging.sns import subscription_store as subscriptions
from sagehen.services.messaging.sns.records import SubscriptionRecord, SubscriptionState
from sagehen.services.messaging.sqs import message_store as messages
from sagehen.services.messaging.sqs import queue_store as queues
from sagehen.services.messaging.sqs.records import NewMessage, QueueRecord
from sagehen.services.messaging.sweeps import TopicSweeps
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit
from support.clock import HandClock

QUEUE = QueueRecord(
    name="q",
    queue_id="q",
    created_at=0,
    modified_at=0,
    attributes={"MessageRetentionPeriod": "60"},
)


@pytest.fixture
def writes(database: Database) -> Iterator[GroupCommit]:
    writes = GroupCommit(database)
    yield writes
    writes.close()


def subscription(name: str, state: SubscriptionState) -> SubscriptionRecord:
    return SubscriptionRecord(
        arn=f"arn:aws:sns:us-east-1:000000000000:t:{name}",
        topic_arn="arn:aws:sns:us-east-1:000000000000:t",
        protocol="http",
        endpoint=f"http://{name}/",
        state=state,
        created_at=0,
        attributes={},
        token=name,
        token_expires_at=1000,
    )


def count(database: Database, table: str) -> int:
    with database.read() as connection:
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())


async def test_what_has_expired_goes(database: Database, writes: GroupCommit) -> None:
    clock = HandClock(999)
    outbox = Outbox(database, writes, clock, lambda *_: None, random.Random(5), {})
    sweeps = TopicSweeps(writes, outbox, clock, most_waiting=10)
    with database.write() as connection:
        queues.insert(connection, QUEUE)
        messages.send(connection, QUEUE, [NewMessage(message_id="m")], now=940)
        for name, state in (
            ("pending", SubscriptionState.PENDING),
            ("confirmed", SubscriptionState.CONFIRMED),
            ("deleted", SubscriptionState.DELETED),
        ):
            subscriptions.insert(connection, subscription(name, state))
    await sweeps.sweep()
    assert (count(database, "subscriptions"), count(database, "queue_messages")) == (3, 1)
    clock.seconds = 1001
    await sweeps.sweep()
    assert (count(database, "subscriptions"), count(database, "queue_messages")) == (1, 0)
