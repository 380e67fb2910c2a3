"""The deliverer's access to the outbox: reads off the event loop, and grouped writes."""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

import msgspec
from sqlalchemy import Connection

from sagehen.base.clock import Clock
from sagehen.frame.context import Record
from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.outbox.destinations import (
    Delivery,
    DeliveryAttempt,
    DeliveryResult,
    Destination,
    ReceiverAnswer,
    Resolve,
)
from sagehen.state.commits import Commits
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit

__all__ = ["DueDeliveries", "Outbox", "next_delay"]

log = logging.getLogger(__name__)

_JITTER = 0.1
"""random part of a delay, so that retries spread"""


def next_delay(attempt: DeliveryAttempt, source: random.Random, now: float) -> float | None:
    """Returns seconds until the next attempt, or None after the last."""
    delivery, destination = attempt.delivery, attempt.destination
    if delivery.attempts >= len(destination.retry_delays):
        return None
    jitter = source.uniform(1 - _JITTER, 1 + _JITTER)
    delay = destination.retry_delays[delivery.attempts] * jitter
    expires_at = delivery.message.published_at + destination.max_age_seconds
    return None if now + delay > expires_at else delay


T = TypeVar("T")


class DueDeliveries(msgspec.Struct, frozen=True):
    """A destination and its due deliveries."""

    destination: Destination
    deliveries: list[Delivery]


SHED_BATCH = 500
"""deliveries per transaction, to let other writers in"""


class Outbox:
    """Reads the pending deliveries, and writes what came of each attempt."""

    def __init__(
        self,
        database: Database,
        writes: GroupCommit,
        clock: Clock,
        record: Record,
        source: random.Random,
        resolvers: Mapping[str, Resolve],
    ) -> None:
        """`source` provides the jitter; `resolvers` has one function per service in ARNs."""
        self._database = database
        self._writes = writes
        self._clock = clock
        self._record = record
        self._source = source
        self._resolvers = resolvers

    @property
    def commits(self) -> Commits:
        return self._database.commits

    async def due_by_address(self) -> dict[str, float]:
        return await asyncio.to_thread(self._read, deliveries.due_by_address)

    async def find_due(
        self, address: str, now: float, limit: int, without: Collection[int]
    ) -> DueDeliveries | None:
        """Returns None if the destination is gone."""
        # Taken before the read: an attempt that ends meanwhile leaves `without`, but the read may
        # still see its delivery.
        excluded = list(without)

        def read(connection: Connection) -> DueDeliveries | None:
            destination = self._resolve(connection, address)
            if destination is None:
                return None
            due = deliveries.due(connection, address, now, limit, excluded)
            return DueDeliveries(destination, due)

        return await asyncio.to_thread(self._read, read)

    async def drop(self, address: str) -> None:
        await self._writes.join(lambda connection: deliveries.drop(connection, [address]))

    async def settle(self, attempt: DeliveryAttempt, answer: ReceiverAnswer) -> None:
        """Removes, postpones or gives up a delivery after an attempt."""
        delivery, delay = attempt.delivery, None
        if answer.result is DeliveryResult.FAILED:
            delay = next_delay(attempt, self._source, self._clock.now())
        if answer.result is DeliveryResult.ACCEPTED:
            await self._writes.join(lambda connection: deliveries.finish(connection, delivery))
        elif delay is not None:
            await self._writes.join(
                partial(deliveries.postpone, delivery=delivery, now=self._clock.now(), delay=delay)
            )
            self._log(attempt, answer, "A delivery failed and is tried again.")
        elif await self._writes.join(partial(_give_up, attempt=attempt, answer=answer)):
            self._log(attempt, answer, "A delivery was given up.")
            self._count_failure(delivery)

    async def shed(self, limit: int) -> int:
        """Gives up deliveries beyond `limit` per address; returns their number."""
        count = 0
        for address in await self.due_by_address():
            while shed := await self._writes.join(partial(self._shed, address, limit)):
                count += len(shed)
                extra = {"action": "shed", "subscription": address, "deliveries": len(shed)}
                log.warning("Deliveries were given up: too many wait.", extra=extra)
                for delivery in shed:
                    self._count_failure(delivery)
        return count

    def _shed(self, address: str, limit: int, connection: Connection) -> list[Delivery]:
        """Does nothing if the destination is gone: its deliveries are dropped when due."""
        destination = self._resolve(connection, address)
        if destination is None:
            return []
        answer = ReceiverAnswer(DeliveryResult.REFUSED, "too many wait")
        excess = deliveries.excess(connection, address, limit, SHED_BATCH)
        return [
            delivery
            for delivery in excess
            if _give_up(
                connection, DeliveryAttempt(delivery=delivery, destination=destination), answer
            )
        ]

    def _resolve(self, connection: Connection, address: str) -> Destination | None:
        """Lets the service that the ARN names find the destination."""
        _, _, service, _ = address.split(":", 3)
        resolve = self._resolvers.get(service)
        return None if resolve is None else resolve(connection, address)

    def _count_failure(self, delivery: Delivery) -> None:
        if delivery.message.dimensions:
            self._record("NotificationFailures", delivery.message.dimensions, 1)

    def _read(self, read: Callable[[Connection], T]) -> T:
        with self._database.read() as connection:
            return read(connection)

    def _log(self, attempt: DeliveryAttempt, answer: ReceiverAnswer, sentence: str) -> None:
        extra = {
            "action": "deliver",
            "subscription": attempt.destination.address,
            "id": attempt.delivery.message.message_id,
            "attempt": attempt.delivery.attempts + 1,
            "why": answer.reason,
        }
        log.warning(sentence, extra=extra)


def _give_up(connection: Connection, attempt: DeliveryAttempt, answer: ReceiverAnswer) -> bool:
    """Drops or dead-letters a delivery; returns False if already gone."""
    if not deliveries.finish(connection, attempt.delivery):
        return False
    attempt.destination.dead_letter(
        connection,
        attempt.delivery,
        answer.reason,
        retries_exhausted=answer.result is DeliveryResult.FAILED,
    )
    return True
