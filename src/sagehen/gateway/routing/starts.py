"""Asks control to start instances, for as long as calls wait for them."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from sagehen.base.clock import Clock
from sagehen.base.errors import Unavailable
from sagehen.http1.call import call
from sagehen.http1.pool import Pool

if TYPE_CHECKING:
    from sagehen.gateway.routing.slot_queue import SlotQueue

__all__ = ["Starts"]

log = logging.getLogger(__name__)

STARTS_PATH = "/_sagehen/internal/starts"
REPEAT_SECONDS = 0.25
"""Control forgets calls that wait after 2 s, and may be restarted."""
POLL_SECONDS = 0.005
"""between looks for the started instance in the route table, 2 µs each"""
FULL_SECONDS = 0.1
"""wait for a slot of the instances that there are, from which another one is asked for"""
TIMEOUT_SECONDS = 2.0


class _WaitingCalls(msgspec.Struct, frozen=True):
    endpoint: str
    variant: str
    calls: int
    instances: int


class Starts:
    """The queues of variants that start on demand, while calls wait in them.

    Args:
        refresh: follows the route table.
    """

    def __init__(self, control: Pool, clock: Clock, refresh: Callable[[], object]) -> None:
        self._control = control
        self._clock = clock
        self._refresh = refresh
        self._queues: dict[SlotQueue, tuple[int, float]] = {}
        """with the number of instances and since when there are so many, monotonic seconds"""
        self._send_at = 0.0
        """monotonic"""
        self._task: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None

    def request(self, queue: "SlotQueue") -> None:
        """Has control told until no call waits in the queue."""
        if queue in self._queues:
            return
        self._queues[queue] = (len(queue.variant.instances), 0.0)
        self._send_at = 0.0
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        tasks = [task for task in (self._task, self._sending) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._keep_waiting():
                self._send_if_due()
                await self._clock.sleep(POLL_SECONDS)
                self._refresh()
        finally:
            self._task = None
            # After an error the next call asks again: a queue that stayed here never would.
            self._queues.clear()

    def _keep_waiting(self) -> bool:
        now = self._clock.monotonic()
        kept = {}
        for queue, (instances, since) in self._queues.items():
            if queue.length:
                count = len(queue.variant.instances)
                kept[queue] = (count, since if count == instances else now)
        self._queues = kept
        return bool(kept)

    def _send_if_due(self) -> None:
        now = self._clock.monotonic()
        if self._sending is not None or now < self._send_at:
            return
        waiting = [
            _WaitingCalls(queue.endpoint, queue.variant.route.name, queue.length, instances)
            for queue, (instances, since) in self._queues.items()
            # The wait for a start is no wait for a slot.
            if not instances or now - max(since, queue.oldest_since) >= FULL_SECONDS
        ]
        if waiting:
            self._send_at = now + REPEAT_SECONDS
            self._sending = asyncio.get_running_loop().create_task(self._send(waiting))

    async def _send(self, waiting: list[_WaitingCalls]) -> None:
        body = msgspec.json.encode({"waiting": waiting})
        try:
            await call(self._control, "POST", STARTS_PATH, body, TIMEOUT_SECONDS)
        except Unavailable as error:
            log.debug("Control could not be told of waiting calls: %s", error)
        finally:
            self._sending = None
