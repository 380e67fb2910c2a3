"""The instances of a transform job, and which of them gets the next request."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

from sagehen.base.clock import Clock
from sagehen.base.errors import Unavailable
from sagehen.base.retry import Backoff
from sagehen.link.upstream import Upstreams, open_upstreams
from sagehen.services.sagemaker.transform.runner_messages import InstanceAddress

__all__ = ["Connect", "Instance", "Instances"]

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
"""of an instance that does not answer, until control says that it is ready again"""

Connect = Callable[[str, Clock], Upstreams]
Prepare = Callable[[InstanceAddress], Awaitable[int]]
"""Asks a new instance for its parameters, and returns how many requests it takes at once. Raises
Unavailable."""


class Instance:
    """An instance: `free` slots of `slots` take requests, unless it pauses."""

    def __init__(self, address: InstanceAddress, stages: tuple[Upstreams, ...]) -> None:
        self.address = address
        self.stages = stages
        """of its containers, in order"""
        self.slots = 0
        self.free = 0
        self.is_removed = False
        self.pauses = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        self.pause: asyncio.Task[None] | None = None

    @property
    def can_take(self) -> bool:
        return self.free > 0 and self.pause is None and not self.is_removed

    @property
    def id(self) -> str:
        return self.address.instance_id


class Instances:
    """Hands out the slots of all instances; requests that wait get them in turn."""

    def __init__(
        self,
        clock: Clock,
        prepare: Prepare,
        connect: Connect = open_upstreams,
    ) -> None:
        self._clock = clock
        self._prepare = prepare
        self._connect = connect
        self._instances: dict[InstanceAddress, Instance] = {}
        self._preparing: dict[InstanceAddress, asyncio.Task[None]] = {}
        self._waiting: deque[asyncio.Future[Instance]] = deque()
        self.slots_changed = asyncio.Event()

    @property
    def slots(self) -> int:
        """Requests that all instances take at once."""
        return sum(instance.slots for instance in self._instances.values())

    def update(self, addresses: Iterable[InstanceAddress]) -> None:
        """Adopts what control says: all instances that are ready now."""
        current = set(addresses)
        for address in [known for known in self._instances if known not in current]:
            self._remove(address)
        for address in current:
            instance = self._instances.get(address)
            if instance is not None and instance.slots:
                self._end_pause(instance)
            elif address not in self._preparing:
                if instance is None:
                    containers = address.containers or (address.address,)
                    stages = tuple(self._connect(entry, self._clock) for entry in containers)
                    instance = self._instances[address] = Instance(address, stages)
                task = asyncio.create_task(self._prepare_instance(instance))
                self._preparing[address] = task

    @asynccontextmanager
    async def slot(self, is_urgent: bool = False) -> AsyncIterator[Instance]:
        """Waits for a slot, however long none is there. `is_urgent`: before all others."""
        instance = await self._take(is_urgent)
        try:
            yield instance
        finally:
            instance.free += 1
            self._hand_out()

    def unreachable(self, instance: Instance) -> None:
        """Sends it nothing for a while."""
        if instance.pause is None and not instance.is_removed:
            instance.pause = asyncio.create_task(self._pause(instance))

    def answered(self, instance: Instance) -> None:
        instance.pauses.reset()

    def close_idle(self) -> None:
        now = self._clock.monotonic()
        for instance in self._instances.values():
            for upstreams in instance.stages:
                upstreams.close_idle(now)

    def close(self) -> None:
        for address in list(self._instances):
            instance = self._instances[address]
            self._remove(address)
            for upstreams in instance.stages:
                upstreams.abort()

    async def _take(self, is_urgent: bool) -> Instance:
        waiter: asyncio.Future[Instance] = asyncio.get_running_loop().create_future()
        if is_urgent:
            self._waiting.appendleft(waiter)
        else:
            self._waiting.append(waiter)
        self._hand_out()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                waiter.result().free += 1
                self._hand_out()
            raise

    def _hand_out(self) -> None:
        while self._waiting:
            instance = max(
                (known for known in self._instances.values() if known.can_take),
                key=lambda known: known.free,
                default=None,
            )
            if instance is None:
                return
            waiter = self._waiting.popleft()
            if not waiter.done():
                instance.free -= 1
                waiter.set_result(instance)

    async def _prepare_instance(self, instance: Instance) -> None:
        backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        try:
            while True:
                try:
                    slots = await self._prepare(instance.address)
                    break
                except Unavailable as error:
                    log.info("The instance %s is not ready: %s", instance.id, error)
                await self._clock.sleep(backoff.next_seconds())
        finally:
            # Another one may be under way, if the instance was removed and added again.
            if self._preparing.get(instance.address) is asyncio.current_task():
                del self._preparing[instance.address]
        instance.slots = instance.free = slots
        self.slots_changed.set()
        self._hand_out()

    def _remove(self, address: InstanceAddress) -> None:
        """Lets requests that are under way end, or break."""
        instance = self._instances.pop(address)
        instance.is_removed = True
        if instance.pause is not None:
            instance.pause.cancel()
        task = self._preparing.pop(address, None)
        if task is not None:
            task.cancel()
        for upstreams in instance.stages:
            upstreams.close()

    async def _pause(self, instance: Instance) -> None:
        await self._clock.sleep(instance.pauses.next_seconds())
        instance.pause = None
        self._hand_out()

    def _end_pause(self, instance: Instance) -> None:
        if instance.pause is not None:
            instance.pause.cancel()
            instance.pause = None
        self._hand_out()
