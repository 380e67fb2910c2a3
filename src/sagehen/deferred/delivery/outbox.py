"""The outbox as the deliverer uses it: reads off the event loop, writes that share commits."""

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from typing import TypeVar

import msgspec
from sqlalchemy import Connection

from sagehen.clock import Clock
from sagehen.deferred.delivery.schedule import next_delay
from sagehen.deferred.delivery.verdicts import Answer, Parcel, Verdict
from sagehen.deferred.record import Record
from sagehen.domain.delivery_policy import effective_policy
from sagehen.domain.topics import PostKind, SubscriptionRecord
from sagehen.store import deliveries, subscriptions, topics
from sagehen.store.database import Database
from sagehen.store.grouped import GroupedWrites
from sagehen.store.notice_queues import put_dead_letter

__all__ = ["Found", "Outbox"]

log = logging.getLogger(__name__)
T = TypeVar("T")


class Found(msgspec.Struct, frozen=True):
    """A subscription, how many a second it takes at most, and what is due for it."""

    subscription: SubscriptionRecord
    most_per_second: int | None
    parcels: list[Parcel]


class Outbox:
    """Deliveries, and who they are for."""

    def __init__(
        self,
        database: Database,
        writes: GroupedWrites,
        clock: Clock,
        record: Record,
        source: random.Random,
    ) -> None:
        """`source`: of the jitter."""
        self._database = database
        self._writes = writes
        self._clock = clock
        self._record = record
        self._source = source

    async def due_by_subscription(self) -> dict[str, float]:
        """When the first delivery of each subscription that has any is due."""
        return await asyncio.to_thread(self._read, deliveries.due_by_subscription)

    async def look(
        self, arn: str, now: float, limit: int, without: Collection[int]
    ) -> Found | None:
        """What is due for a subscription but for what is under way; None: it is gone."""
        return await asyncio.to_thread(
            self._read, lambda connection: _look(connection, arn, now, limit, list(without))
        )

    async def drop(self, arn: str) -> None:
        """Forget what is on its way to a subscription that is gone."""
        await self._writes.join(lambda connection: deliveries.drop(connection, [arn]))

    async def settle(self, parcel: Parcel, answer: Answer) -> None:
        """Note what came of an attempt."""
        delay = next_delay(parcel, self._source) if answer.verdict is Verdict.FAILED else None
        if answer.verdict is Verdict.ACCEPTED:
            await self._writes.join(
                lambda connection: deliveries.finish(connection, parcel.delivery)
            )
        elif delay is not None:
            due_at = self._clock.now() + delay
            await self._writes.join(
                lambda connection: deliveries.postpone(connection, parcel.delivery, due_at)
            )
            self._log(parcel, answer, "A delivery failed and is tried again.")
        elif await self._writes.join(lambda connection: _give_up(connection, parcel)):
            self._log(parcel, answer, "A delivery was given up.")
            if parcel.delivery.notice.dimensions:
                self._record("NotificationFailures", parcel.delivery.notice.dimensions, 1)

    def _read(self, work: Callable[[Connection], T]) -> T:
        with self._database.read() as connection:
            return work(connection)

    def _log(self, parcel: Parcel, answer: Answer, sentence: str) -> None:
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
) -> Found | None:
    subscription = subscriptions.get(connection, arn)
    if subscription is None:
        return None
    topic = topics.get(connection, subscription.topic_arn)
    if topic is None:
        return None
    parcels = [
        Parcel(delivery=one, subscription=subscription, topic=topic)
        for one in deliveries.due(connection, arn, now, limit, without)
    ]
    policy = effective_policy(
        topic.attributes.get("DeliveryPolicy"), subscription.attributes.get("DeliveryPolicy")
    )
    return Found(subscription, policy.most_per_second, parcels)


def _give_up(connection: Connection, parcel: Parcel) -> bool:
    """Forget a delivery, or have it among the dead letters; False where it is gone already."""
    if not deliveries.finish(connection, parcel.delivery):
        return False
    if parcel.delivery.kind is PostKind.NOTIFICATION:
        put_dead_letter(
            connection,
            parcel.subscription,
            parcel.delivery.notice,
            parcel.topic.signature_version,
        )
    return True
