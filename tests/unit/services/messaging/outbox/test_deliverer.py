"""The deliverer by a hand clock: what it begins, tries again, gives up, and whom it lets wait."""

import asyncio
import json
import random
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import pytest

from sagehen.services.messaging.outbox import deliverer as module
from sagehen.services.messaging.outbox.deliverer import Deliverer
from sagehen.services.messaging.outbox.destinations import (
    DeliveryAttempt,
    DeliveryResult,
    ReceiverAnswer,
)
from sagehen.services.messaging.outbox.limits import ConcurrencyLimits
from sagehen.services.messaging.outbox.outbox import Outbox
from sagehen.services.messaging.sns import (
    subscription_store as subscriptions,
)
from sagehen.services.messaging.sns import (
    topic_store as topics,
)
from sagehen.services.messaging.sns.deliveries import SubscriptionResolver
from sagehen.services.messaging.sns.envelopes import Links
from sagehen.services.messaging.sns.records import (
    Notice,
    SubscriptionRecord,
    SubscriptionState,
    TopicRecord,
)
from sagehen.services.messaging.sqs import message_store as messages
from sagehen.services.messaging.sqs import queue_store as queues
from sagehen.services.messaging.sqs.records import NewMessage, QueueRecord
from sagehen.services.messaging.sweeps import TopicSweeps
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit
from sagehen.state.leadership import Leadership
from support.clock import HandClock, SteppedClock

TOPIC = "arn:aws:sns:us-east-1:000000000000:t"


class Middle(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


@dataclass
class World:
    """A deliverer whose posts are answered as `answers` says, by endpoint."""

    database: Database
    clock: HandClock
    writes: GroupCommit
    answers: dict[str, list[ReceiverAnswer | asyncio.Event]] = field(default_factory=dict)
    posted: list[tuple[str, str]] = field(default_factory=list)
    recorded: list[tuple[str, Mapping[str, str], float]] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """A post was made."""

    def outbox(self) -> Outbox:
        return Outbox(
            self.database,
            self.writes,
            self.clock,
            lambda *one: self.recorded.append(one),
            Middle(),
            {"sns": SubscriptionResolver(lambda _: "{}", Links("http://host", "/c.pem"))},
        )

    def deliverer(self, holder: str = "a", most_each: int = 2) -> Deliverer:
        leadership = Leadership(self.database, self.clock, holder)
        return Deliverer(
            self.outbox(), self.send, leadership, ConcurrencyLimits(100, most_each), self.clock
        )

    async def send(self, attempt: DeliveryAttempt) -> ReceiverAnswer:
        self.asked.set()
        endpoint = attempt.destination.endpoint
        self.posted.append((endpoint, attempt.delivery.message.message_id))
        waiting = self.answers.get(endpoint)
        answer = waiting.pop(0) if waiting else ReceiverAnswer(DeliveryResult.ACCEPTED)
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            return ReceiverAnswer(DeliveryResult.ACCEPTED)
        return answer

    def subscribe(self, endpoint: str, **attributes: str) -> str:
        record = SubscriptionRecord(
            arn=f"{TOPIC}:{uuid.uuid4()}",
            topic_arn=TOPIC,
            protocol="http",
            endpoint=endpoint,
            state=SubscriptionState.CONFIRMED,
            created_at=0,
            attributes=attributes,
            token=uuid.uuid4().hex,
            token_expires_at=1e9,
        )
        with self.database.write() as connection:
            subscriptions.insert(connection, record)
        return record.arn

    def publish(self, *ids: str, **dimensions: str) -> None:
        with self.database.write() as connection:
            for one in ids:
                notice = Notice(
                    message_id=one,
                    topic_arn=TOPIC,
                    message=one,
                    published_at=self.clock.now(),
                    dimensions=dimensions,
                )
                assert topics.publish(connection, notice)

    def left(self) -> int:
        with self.database.read() as connection:
            counted = connection.exec_driver_sql("SELECT count(*) FROM deliveries")
            return int(counted.scalar_one())


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    with database.write() as connection:
        topics.insert(connection, TopicRecord(arn=TOPIC, created_at=0, attributes={}))
    writes = GroupCommit(database)
    yield World(database, HandClock(1000), writes)
    writes.close()


FAILED = ReceiverAnswer(DeliveryResult.FAILED, "no")


async def turns(deliverer: Deliverer, count: int = 1) -> float:
    for _ in range(count):
        wait = await deliverer.turn()
        await deliverer.drain()
    return wait


async def test_delivered_once(world: World) -> None:
    world.subscribe("http://a/")
    world.subscribe("http://b/")
    world.publish("1", "2", "3")
    await turns(world.deliverer(), 3)
    assert sorted(world.posted) == [(f"http://{host}/", one) for host in "ab" for one in "123"]
    assert world.left() == 0


async def test_what_failed_waits_as_its_policy_says(world: World) -> None:
    world.subscribe("http://a/")
    world.answers["http://a/"] = [FAILED, FAILED]
    world.publish("1")
    deliverer = world.deliverer()
    await turns(deliverer)
    world.clock.seconds += 19.9
    await turns(deliverer)
    assert len(world.posted) == 1
    world.clock.seconds += 0.05
    assert 0 < await turns(deliverer) <= 0.06
    world.clock.seconds += 0.1
    await turns(deliverer)
    assert len(world.posted) == 2
    world.clock.seconds += 20
    await turns(deliverer)
    assert [one for _, one in world.posted] == ["1"] * 3
    assert world.left() == 0
    assert world.recorded == []


async def test_given_up_after_the_last_attempt(world: World) -> None:
    queue = QueueRecord(name="dead", queue_id="d", created_at=0, modified_at=0, attributes={})
    with world.database.write() as connection:
        queues.insert(connection, queue)
    target = {"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead"}
    policy = {"healthyRetryPolicy": {"numRetries": 1, "numNoDelayRetries": 1}}
    world.subscribe(
        "http://a/", RedrivePolicy=json.dumps(target), DeliveryPolicy=json.dumps(policy)
    )
    world.answers["http://a/"] = [FAILED] * 5
    world.publish("1", EndpointName="e", VariantName="v")
    await turns(world.deliverer(), 3)
    assert len(world.posted) == 2
    assert world.left() == 0
    dimensions = {"EndpointName": "e", "VariantName": "v"}
    assert world.recorded == [("NotificationFailures", dimensions, 1)]
    with world.database.write() as connection:
        (letter,) = messages.receive(connection, queue, 10, 0, world.clock.now())
    assert letter.content.envelope is not None
    assert letter.content.envelope.message_id == "1"


async def test_no_more_wait_for_a_dead_receiver_than_may(world: World) -> None:
    queue = QueueRecord(name="dead", queue_id="d", created_at=0, modified_at=0, attributes={})
    with world.database.write() as connection:
        queues.insert(connection, queue)
    target = {"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead"}
    world.subscribe("http://a/", RedrivePolicy=json.dumps(target))
    world.publish("0")
    world.answers["http://a/"] = [FAILED]
    await turns(world.deliverer())
    world.publish(*"12345", endpoint="e")
    sweeps = TopicSweeps(world.writes, world.outbox(), world.clock, most_waiting=3)
    await sweeps.sweep()
    assert world.left() == 3
    assert world.recorded == [("NotificationFailures", {"endpoint": "e"}, 1)] * 2
    with world.database.write() as connection:
        letters = messages.receive(connection, queue, 10, 0, world.clock.now())
        notices = connection.exec_driver_sql("SELECT count(*) FROM notices").scalar_one()
    kept = [one.content.envelope.message_id for one in letters if one.content.envelope]
    assert sorted(kept) == ["0", "4", "5"]
    assert notices == 3
    await sweeps.sweep()
    assert world.left() == 3


@pytest.mark.parametrize("restarted", [True, False])
async def test_after_the_clock_was_set_back_all_goes_on(world: World, restarted: bool) -> None:
    queue = QueueRecord(name="q", queue_id="q", created_at=0, modified_at=0, attributes={})
    clock = SteppedClock(20_000)
    sweeps = TopicSweeps(world.writes, world.outbox(), clock, most_waiting=3)
    await sweeps.sweep()
    world.clock.seconds = clock.now()
    world.subscribe("http://a/")
    world.publish("1")
    with world.database.write() as connection:
        queues.insert(connection, queue)
        new = NewMessage(message_id="m", body="b")
        messages.send(connection, queue, [new], clock.now())
        assert len(messages.receive(connection, queue, 1, 20, clock.now())) == 1
    clock.jump(-18_000)
    world.clock.seconds = clock.now()
    if restarted:
        sweeps = TopicSweeps(world.writes, world.outbox(), clock, most_waiting=3)
    await sweeps.sweep()
    await turns(world.deliverer())
    assert world.posted == [("http://a/", "1")]
    with world.database.write() as connection:
        assert messages.next_visible(connection, queue, clock.now()) == clock.now() + 20


async def test_a_refusal_is_final(world: World) -> None:
    world.subscribe("http://a/")
    world.answers["http://a/"] = [ReceiverAnswer(DeliveryResult.REFUSED, "404")]
    world.publish("1")
    await turns(world.deliverer(), 2)
    assert len(world.posted) == 1
    assert world.left() == 0


async def test_one_receiver_that_hangs_has_its_share_and_no_more(world: World) -> None:
    world.subscribe("http://stuck:1/x")
    world.subscribe("http://stuck:1/y")
    world.subscribe("http://well/")
    released = asyncio.Event()
    world.answers["http://stuck:1/x"] = [released] * 9
    world.answers["http://stuck:1/y"] = [released] * 9
    world.publish(*"12345")
    deliverer = world.deliverer(most_each=2)
    async with asyncio.timeout(120):
        while sum("well" in host for host, _ in world.posted) < 5:
            await deliverer.turn()
    assert sorted(one for host, one in world.posted if "well" in host) == list("12345")
    assert sum("stuck" in host for host, _ in world.posted) == 2
    released.set()
    world.answers.clear()
    await turns(deliverer, 9)
    assert world.left() == 0
    assert len(world.posted) == 15


async def test_a_path_that_hangs_leaves_room_for_the_others_of_its_host(world: World) -> None:
    world.subscribe("http://app:1/stuck")
    world.subscribe("http://app:1/well")
    released = asyncio.Event()
    world.answers["http://app:1/stuck"] = [released] * 9
    world.publish(*"123456789")
    deliverer = world.deliverer(most_each=4)
    async with asyncio.timeout(120):
        while sum("well" in url for url, _ in world.posted) < 9:
            await deliverer.turn()
    assert sum("stuck" in url for url, _ in world.posted) == 3
    released.set()
    await deliverer.drain()


async def test_nothing_is_begun_twice(world: World) -> None:
    world.subscribe("http://a/")
    released = asyncio.Event()
    world.answers["http://a/"] = [released]
    world.publish("1")
    deliverer = world.deliverer()
    for _ in range(3):
        await deliverer.turn()
        await asyncio.sleep(0)
    assert len(world.posted) == 1
    released.set()
    await deliverer.drain()
    assert world.left() == 0


async def test_what_was_under_way_is_begun_again_by_the_next(world: World) -> None:
    world.subscribe("http://a/")
    world.answers["http://a/"] = [asyncio.Event()]
    world.publish("1")
    first = world.deliverer()
    running = asyncio.create_task(first.run())
    await world.asked.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await turns(world.deliverer("another"))
    assert [one for _, one in world.posted] == ["1", "1"]
    assert world.left() == 0


async def test_one_control_delivers_at_a_time(world: World) -> None:
    world.subscribe("http://a/")
    world.publish("1")
    first, second = world.deliverer("a"), world.deliverer("b")
    assert await first._lease.hold()
    await turns(second)
    assert world.posted == []
    world.clock.seconds += 6  # The first was not heard of since.
    await turns(second)
    assert len(world.posted) == 1


async def test_unsubscribed_meanwhile(world: World) -> None:
    arn = world.subscribe("http://a/")
    released = asyncio.Event()
    world.answers["http://a/"] = [released]
    world.publish("1", "2", "3")
    deliverer = world.deliverer()
    await deliverer.turn()
    await world.asked.wait()
    with world.database.write() as connection:
        topics.delete(connection, TOPIC)
        assert subscriptions.get(connection, arn) is None
    released.set()
    await turns(deliverer, 2)
    assert world.left() == 0
    assert world.recorded == []


async def test_a_hint_ends_the_rest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REST_SECONDS", 600)
    world.subscribe("http://a/")
    deliverer = world.deliverer()
    world.database.listen("deliveries", deliverer.hint)
    running = asyncio.create_task(deliverer.run())
    async with asyncio.timeout(120):
        while not deliverer._lease.is_ours:  # noqa: ASYNC110
            await asyncio.sleep(0)
    world.publish("1")
    # By itself it would look again after ten minutes.
    assert await asyncio.wait_for(world.asked.wait(), 60)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_time_alone_does_not_look_into_an_empty_outbox(world: World, monkeypatch) -> None:
    deliverer = world.deliverer()
    looks = 0
    look = deliverer._outbox.due_by_address

    async def counted() -> dict[str, float]:
        nonlocal looks
        looks += 1
        return await look()

    monkeypatch.setattr(deliverer._outbox, "due_by_address", counted)
    await deliverer.turn()  # It takes the lease, which is a commit.
    await deliverer._turn_or_back_off()
    before = looks
    await deliverer._turn_or_back_off()
    assert looks == before
    # By another control, of which nobody told.
    world.subscribe("http://a/")
    world.publish("1")
    await deliverer._turn_or_back_off()
    await deliverer.drain()
    assert looks == before + 1
    assert world.posted == [("http://a/", "1")]
