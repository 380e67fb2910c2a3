"""The loop that delivers what is in the outbox.

Each turn holds the lease and starts due deliveries as the limits of their receivers allow. Each
attempt is accepted, postponed or given up. An empty outbox is read again only after a commit.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sagehen.base.clock import Clock
from sagehen.base.concurrency import Wake
from sagehen.services.messaging.outbox.destinations import (
    DeliveryAttempt,
    DeliveryResult,
    HttpRequest,
    ReceiverAnswer,
)
from sagehen.services.messaging.outbox.http import HttpSender
from sagehen.services.messaging.outbox.limits import ConcurrencyLimits, RateLimits
from sagehen.services.messaging.outbox.mail import MailSender
from sagehen.services.messaging.outbox.outbox import DueDeliveries, Outbox
from sagehen.state.commits import IdleCheck
from sagehen.state.leadership import Leadership
from sagehen.state.leases import LeaseLost, LoopLease

__all__ = ["Deliverer", "Send", "send_with"]

log = logging.getLogger(__name__)

Send = Callable[[DeliveryAttempt], Awaitable[ReceiverAnswer]]
"""makes one attempt within a bounded time"""

MAX_REST_SECONDS = 1.0
ERROR_SECONDS = 1.0
LEASE_NAME = "deliveries"
MAX_ATTEMPTS = 4096
"""running, or ended but not recorded"""


def send_with(http: HttpSender, mail: MailSender, clock: Clock) -> Send:
    async def send(attempt: DeliveryAttempt) -> ReceiverAnswer:
        compose = attempt.destination.compose
        request = await asyncio.to_thread(compose, attempt.delivery, clock.now())
        if isinstance(request, HttpRequest):
            return await http.send(request)
        return await mail.send(request)

    return send


class Deliverer:
    """Empties the outbox, with one task per attempt."""

    def __init__(
        self,
        outbox: Outbox,
        send: Send,
        leadership: Leadership,
        limits: ConcurrencyLimits,
        clock: Clock,
    ) -> None:
        self._outbox = outbox
        self._send = send
        self._lease: LoopLease = leadership.lease(LEASE_NAME)
        self._limits = limits
        self._rates = RateLimits()
        self._clock = clock
        self._wake = Wake()
        self._wake.begin()
        self._idle = IdleCheck(outbox.commits, clock)
        self._running: dict[str, dict[int, asyncio.Task[None]]] = {}
        """by address, then by delivery id"""
        self._receivers: dict[str, str] = {}
        """by address; only those seen since they last had no delivery"""
        leadership.on_change(self.hint)
        outbox.commits.on_change(self.hint)

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
            return MAX_REST_SECONDS
        now = self._clock.now()
        due = await self._outbox.due_by_address()
        self._forget_all_but(set(due))
        if not due and not self._running:
            self._idle.end()
        next_at = now + MAX_REST_SECONDS
        for address, due_at in sorted(due.items(), key=lambda item: item[1]):
            if due_at > now:
                next_at = min(next_at, due_at)
            elif self._limits.is_full or len(self._tasks()) >= MAX_ATTEMPTS:
                break
            elif self._may_start(address):
                next_at = min(next_at, await self._start(address, now))
        return max(0.0, next_at - self._clock.now())

    async def drain(self) -> None:
        while tasks := self._tasks():
            await asyncio.gather(*tasks)

    async def _turn_or_back_off(self) -> float:
        try:
            if not self._wake.is_set and self._idle.is_idle and await self._lease.hold():
                return MAX_REST_SECONDS
            return await self.turn()
        except Exception:
            log.exception("Delivering failed and is tried again.", extra={"action": "deliver"})
            await self._clock.sleep(ERROR_SECONDS)
            return 0

    def _may_start(self, address: str) -> bool:
        """Spares the database a look for a receiver known to have no free slot."""
        receiver = self._receivers.get(address)
        return receiver is None or self._limits.free(receiver, address) > 0

    async def _start(self, address: str, now: float) -> float:
        """Starts an address's attempts; returns when to look again."""
        running = self._running.get(address, {})
        due = await self._outbox.find_due(address, now, self._limits.per_receiver, running)
        if due is None:
            await self._outbox.drop(address)
            return now + MAX_REST_SECONDS
        destination = due.destination
        self._receivers[address] = destination.receiver
        allowed = self._rates.allowed(address, destination.max_per_second, now)
        if allowed == 0 and destination.max_per_second:
            return now + 1 / destination.max_per_second
        free = max(0, self._limits.free(destination.receiver, address))
        self._start_some(due, free if allowed is None else min(free, allowed), now)
        return now + MAX_REST_SECONDS

    def _start_some(self, due: DueDeliveries, count: int, now: float) -> None:
        destination = due.destination
        address = destination.address
        for delivery in due.deliveries[:count]:
            self._rates.use(address, destination.max_per_second, now)
            self._limits.begin(destination.receiver, address)
            attempt = DeliveryAttempt(delivery=delivery, destination=destination)
            task = asyncio.create_task(self._attempt(attempt))
            self._running.setdefault(address, {})[delivery.delivery_id] = task

    async def _attempt(self, attempt: DeliveryAttempt) -> None:
        address = attempt.destination.address
        try:
            answer = await self._send_and_free(attempt)
            await self._outbox.settle(attempt, answer)
        except LeaseLost:
            pass  # This process was stopped; another control makes the attempt.
        except Exception:
            extra = {"action": "deliver", "subscription": address}
            log.exception("The result of a delivery could not be recorded.", extra=extra)
            # The delivery is still due: wait, or an immediate error would repeat without end.
            await self._clock.sleep(ERROR_SECONDS)
        finally:
            del self._running[address][attempt.delivery.delivery_id]
            if not self._running[address]:
                del self._running[address]
            self._wake.set()

    async def _send_and_free(self, attempt: DeliveryAttempt) -> ReceiverAnswer:
        destination = attempt.destination
        try:
            if not self._lease.is_ours:
                raise LeaseLost("Another control delivers now.")
            return await self._send(attempt)
        except LeaseLost:
            raise
        except Exception as error:
            log.exception("A delivery failed.", extra={"action": "deliver"})
            return ReceiverAnswer(DeliveryResult.FAILED, f"{type(error).__name__}: {error}")
        finally:
            # Free the slot before the disk write, so the next attempt need not wait.
            self._limits.end(destination.receiver, destination.address)
            self._wake.set()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for tasks in self._running.values() for task in tasks.values()]

    def _forget_all_but(self, addresses: set[str]) -> None:
        self._rates.forget_all_but(addresses)
        for address in self._receivers.keys() - addresses:
            del self._receivers[address]
