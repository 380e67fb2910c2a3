"""The loop that delivers what is in the outbox.

Each turn holds the lease and starts due deliveries as their receivers have room. Each attempt is
accepted, postponed or given up. An empty outbox is read again only after a commit.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from sagehen.base.clock import Clock
from sagehen.base.concurrency import Wake
from sagehen.services.messaging.outbox.attempts import (
    DeliveryAttempt,
    DeliveryResult,
    ReceiverAnswer,
)
from sagehen.services.messaging.outbox.outbox import Outbox
from sagehen.services.messaging.outbox.receivers import Receivers, Throttle, receiver_of
from sagehen.state.commits import IdleCheck
from sagehen.state.leases import HeldLease

__all__ = ["Deliverer", "Post"]

log = logging.getLogger(__name__)

Post = Callable[[DeliveryAttempt], Awaitable[ReceiverAnswer]]
"""makes one attempt within a bounded time; never raises"""

LONGEST_REST_SECONDS = 1.0
ERROR_SECONDS = 1.0
MOST_UNDER_WAY = 4096
"""attempts running, or ended but not recorded"""


class Deliverer:
    """Empties the outbox, with one task per attempt."""

    def __init__(
        self,
        outbox: Outbox,
        posts: Mapping[str, Post],
        lease: HeldLease,
        receivers: Receivers,
        clock: Clock,
    ) -> None:
        """`posts` has one function per protocol."""
        self._outbox = outbox
        self._posts = posts
        self._lease = lease
        self._receivers = receivers
        self._throttle = Throttle()
        self._clock = clock
        self._wake = Wake()
        self._wake.begin()
        self._idle = IdleCheck(outbox.commits, clock)
        self._under_way: dict[str, dict[int, asyncio.Task[None]]] = {}
        """by subscription, then by delivery id"""
        self._known: dict[str, str] = {}
        """subscription ARN to receiver"""

    def hint(self, _: str = "") -> None:
        """Wakes the loop; callable from any thread."""
        self._wake.hint()

    async def run(self) -> None:
        """Delivers until cancelled; the next lease holder repeats unfinished attempts."""
        try:
            while True:
                await self._wake.rest(await self._turn_or_back_off())
        finally:
            tasks = self._tasks()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._lease.let_go()

    async def turn(self) -> float:
        """Starts all attempts possible now; returns seconds until the next."""
        self._wake.clear()
        self._idle.begin()
        if not await self._lease.hold():
            return LONGEST_REST_SECONDS
        now = self._clock.now()
        due = await self._outbox.due_by_subscription()
        self._forget_all_but(set(due))
        if not due and not self._under_way:
            self._idle.end()
        soonest = now + LONGEST_REST_SECONDS
        for arn, due_at in sorted(due.items(), key=lambda one: one[1]):
            if due_at > now:
                soonest = min(soonest, due_at)
            elif self._receivers.is_full or len(self._tasks()) >= MOST_UNDER_WAY:
                break
            elif arn not in self._known or self._receivers.room(self._known[arn], arn) > 0:
                soonest = min(soonest, await self._begin(arn, now))
        return max(0.0, soonest - self._clock.now())

    async def drain(self) -> None:
        while tasks := self._tasks():
            await asyncio.gather(*tasks)

    async def _turn_or_back_off(self) -> float:
        try:
            if not self._wake.is_set and self._idle.is_idle and await self._lease.hold():
                return LONGEST_REST_SECONDS
            return await self.turn()
        except Exception:
            log.exception("Delivering failed and is tried again.", extra={"action": "deliver"})
            await self._clock.sleep(ERROR_SECONDS)
            return 0

    async def _begin(self, arn: str, now: float) -> float:
        """Starts a subscription's attempts; returns when to look again."""
        under_way = self._under_way.get(arn, {})
        found = await self._outbox.look(arn, now, self._receivers.most_each, under_way)
        if found is None:
            await self._outbox.drop(arn)
            return now + LONGEST_REST_SECONDS
        receiver = self._known[arn] = receiver_of(found.subscription)
        allowed = self._throttle.allows(arn, found.most_per_second, now)
        if allowed == 0 and found.most_per_second:
            return now + 1 / found.most_per_second
        room = max(0, self._receivers.room(receiver, arn))
        for parcel in found.parcels[: room if allowed is None else min(room, allowed)]:
            self._throttle.use(arn, found.most_per_second, now)
            self._receivers.begin(receiver, arn)
            task = asyncio.create_task(self._attempt(parcel, receiver))
            self._under_way.setdefault(arn, {})[parcel.delivery.delivery_id] = task
        return now + LONGEST_REST_SECONDS

    async def _attempt(self, parcel: DeliveryAttempt, receiver: str) -> None:
        arn = parcel.subscription.arn
        try:
            answer = await self._post_and_make_room(parcel, receiver)
            await self._outbox.settle(parcel, answer)
        except Exception:
            about = {"action": "deliver", "subscription": arn}
            log.exception("What came of a delivery could not be noted.", extra=about)
            # The delivery is still due: wait, or an immediate error would repeat without end.
            await self._clock.sleep(ERROR_SECONDS)
        finally:
            del self._under_way[arn][parcel.delivery.delivery_id]
            if not self._under_way[arn]:
                del self._under_way[arn]
            self._wake.set()

    async def _post_and_make_room(self, parcel: DeliveryAttempt, receiver: str) -> ReceiverAnswer:
        try:
            return await self._post(parcel)
        finally:
            # Free the slot before the disk write, so the next attempt need not wait.
            self._receivers.end(receiver, parcel.subscription.arn)
            self._wake.set()

    async def _post(self, parcel: DeliveryAttempt) -> ReceiverAnswer:
        post = self._posts.get(parcel.subscription.protocol)
        if post is None:
            return ReceiverAnswer(DeliveryResult.REFUSED, "no such protocol")
        try:
            return await post(parcel)
        except Exception as error:
            log.exception("A delivery failed.", extra={"action": "deliver"})
            return ReceiverAnswer(DeliveryResult.FAILED, f"{type(error).__name__}: {error}")

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for tasks in self._under_way.values() for task in tasks.values()]

    def _forget_all_but(self, arns: set[str]) -> None:
        self._throttle.forget(arns)
        for arn in self._known.keys() - arns:
            del self._known[arn]
