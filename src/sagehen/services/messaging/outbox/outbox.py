"""The deliverer's access to the outbox: reads off the event loop, and grouped writes."""

import asyncio
import logging
import math
import random
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from sqlalchemy import Connection

from sagehen.base.clock import Clock
from sagehen.frame.context import Record
from sagehen.services.messaging.events import target_store as event_targets
from sagehen.services.messaging.events.deliveries import EVENT_DELAYS, PROTOCOL, is_address
from sagehen.services.messaging.events.event_store import put_undelivered
from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.outbox.attempts import (
    DeliveryAttempt,
    DeliveryResult,
    ReceiverAnswer,
)
from sagehen.services.messaging.outbox.retry_policy import (
    MAIL_DELAYS,
    WEBHOOK_DELAYS,
    RetryPolicy,
    effective_policy,
)
from sagehen.services.messaging.sns import (
    subscription_store as subscriptions,
)
from sagehen.services.messaging.sns import (
    topic_store as topics,
)
from sagehen.services.messaging.sns.records import PostKind, SubscriptionRecord, TopicRecord
from sagehen.services.messaging.sqs.notice_queues import put_dead_letter
from sagehen.state.commits import Commits
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit

__all__ = ["DueDeliveries", "Outbox", "next_delay"]

log = logging.getLogger(__name__)

_JITTER = 0.1
"""random part of a delay, so that retries spread"""


def next_delay(parcel: DeliveryAttempt, source: random.Random, now: float) -> float | None:
    """Returns seconds until the next attempt, or None after the last."""
    delays = _delays(parcel)
    made = parcel.delivery.attempts
    if made >= len(delays):
        return None
    delay = delays[made] * source.uniform(1 - _JITTER, 1 + _JITTER)
    return None if now + delay > _ends_at(parcel) else delay


def _delays(parcel: DeliveryAttempt) -> Sequence[float]:
    protocol = parcel.subscription.protocol
    if protocol.startswith("email"):
        return MAIL_DELAYS
    if protocol == PROTOCOL:
        return EVENT_DELAYS[: int(parcel.subscription.attributes["MaximumRetryAttempts"])]
    retries = parcel.policy.retries
    if retries is None:
        return WEBHOOK_DELAYS if protocol == "webhook" else RetryPolicy().delays()
    return retries.delays()


def _ends_at(parcel: DeliveryAttempt) -> float:
    """Returns when events become too old to retry."""
    age = parcel.subscription.attributes.get("MaximumEventAgeInSeconds")
    if parcel.subscription.protocol != PROTOCOL or age is None:
        return math.inf
    return parcel.delivery.notice.published_at + float(age)


T = TypeVar("T")


class DueDeliveries(msgspec.Struct, frozen=True):
    """A subscription and its due deliveries."""

    subscription: SubscriptionRecord
    most_per_second: int | None
    parcels: list[DeliveryAttempt]


SHED_AT_ONCE = 500
"""per transaction, to let other writers in"""


class Outbox:
    """Reads and settles the pending deliveries."""

    def __init__(
        self,
        database: Database,
        writes: GroupCommit,
        clock: Clock,
        record: Record,
        source: random.Random,
    ) -> None:
        """`source` provides the jitter."""
        self._database = database
        self._writes = writes
        self._clock = clock
        self._record = record
        self._source = source

    @property
    def commits(self) -> Commits:
        return self._database.commits

    async def due_by_subscription(self) -> dict[str, float]:
        return await asyncio.to_thread(self._read, deliveries.due_by_subscription)

    async def look(
        self, arn: str, now: float, limit: int, without: Collection[int]
    ) -> DueDeliveries | None:
        """Returns None if the subscription is gone."""
        return await asyncio.to_thread(
            self._read, lambda connection: _look(connection, arn, now, limit, list(without))
        )

    async def drop(self, arn: str) -> None:
        await self._writes.join(lambda connection: deliveries.drop(connection, [arn]))

    async def settle(self, parcel: DeliveryAttempt, answer: ReceiverAnswer) -> None:
        delay = None
        if answer.verdict is DeliveryResult.FAILED:
            delay = next_delay(parcel, self._source, self._clock.now())
        if answer.verdict is DeliveryResult.ACCEPTED:
            await self._writes.join(
                lambda connection: deliveries.finish(connection, parcel.delivery)
            )
        elif delay is not None:
            now, wait = self._clock.now(), delay
            await self._writes.join(
                lambda connection: deliveries.postpone(connection, parcel.delivery, now, wait)
            )
            self._log(parcel, answer, "A delivery failed and is tried again.")
        elif await self._writes.join(lambda connection: _give_up(connection, parcel, answer)):
            self._log(parcel, answer, "A delivery was given up.")
            self._count(parcel)

    async def shed(self, most: int) -> int:
        """Gives up deliveries beyond `most` per subscription; returns their number."""
        gone = 0
        for arn in await self.due_by_subscription():
            while shed := await self._writes.join(partial(_shed, arn, most)):
                gone += len(shed)
                about = {"action": "shed", "subscription": arn, "deliveries": len(shed)}
                log.warning("Deliveries were given up: too many wait.", extra=about)
                for parcel in shed:
                    self._count(parcel)
        return gone

    def _count(self, parcel: DeliveryAttempt) -> None:
        if parcel.delivery.notice.dimensions:
            self._record("NotificationFailures", parcel.delivery.notice.dimensions, 1)

    def _read(self, work: Callable[[Connection], T]) -> T:
        with self._database.read() as connection:
            return work(connection)

    def _log(self, parcel: DeliveryAttempt, answer: ReceiverAnswer, sentence: str) -> None:
        about = {
            "action": "deliver",
            "subscription": parcel.subscription.arn,
            "id": parcel.delivery.notice.message_id,
            "attempt": parcel.delivery.attempts + 1,
            "why": answer.why,
        }
        log.warning(sentence, extra=about)


def _look(
    connection: Connection, arn: str, now: float, limit: int, without: list[int]
) -> DueDeliveries | None:
    found = _find(connection, arn)
    if found is None:
        return None
    subscription, topic = found
    parcels = [
        DeliveryAttempt(delivery=one, subscription=subscription, topic=topic)
        for one in deliveries.due(connection, arn, now, limit, without)
    ]
    policy = effective_policy(
        topic.attributes.get("DeliveryPolicy"), subscription.attributes.get("DeliveryPolicy")
    )
    return DueDeliveries(subscription, policy.most_per_second, parcels)


def _find(connection: Connection, arn: str) -> tuple[SubscriptionRecord, TopicRecord] | None:
    """Returns None if subscription or topic is gone."""
    if is_address(arn):
        return event_targets.find_receiver(connection, arn)
    subscription = subscriptions.get(connection, arn)
    topic = subscription and topics.get(connection, subscription.topic_arn)
    return (subscription, topic) if subscription and topic else None


def _shed(arn: str, most: int, connection: Connection) -> list[DeliveryAttempt]:
    """Does nothing if the subscription is gone: its deliveries are dropped when due."""
    found = _find(connection, arn)
    if found is None:
        return []
    subscription, topic = found
    parcels = [
        DeliveryAttempt(delivery=one, subscription=subscription, topic=topic)
        for one in deliveries.excess(connection, arn, most, SHED_AT_ONCE)
    ]
    return [
        one
        for one in parcels
        if _give_up(connection, one, ReceiverAnswer(DeliveryResult.REFUSED, "too many wait"))
    ]


def _give_up(connection: Connection, parcel: DeliveryAttempt, answer: ReceiverAnswer) -> bool:
    """Drops or dead-letters a delivery; returns False if already gone."""
    if not deliveries.finish(connection, parcel.delivery):
        return False
    if parcel.subscription.protocol == PROTOCOL:
        tried_out = answer.verdict is DeliveryResult.FAILED
        put_undelivered(connection, parcel.subscription, parcel.delivery, answer.why, tried_out)
    elif parcel.delivery.kind is PostKind.NOTIFICATION:
        put_dead_letter(
            connection,
            parcel.subscription,
            parcel.delivery.notice,
            parcel.topic.signature_version,
        )
    return True
