"""Requests of a variant that wait for a free slot."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Protocol

from sagehen.gateway.routing.inflight import InflightTable

if TYPE_CHECKING:
    from sagehen.gateway.peers.door_queue import DoorQueue
    from sagehen.gateway.peers.queue_peers import QueuePeers
    from sagehen.gateway.routing.instance import RoutedInstance
    from sagehen.gateway.routing.routes import Variant
    from sagehen.gateway.routing.starts import Starts

__all__ = ["SlotQueue", "SlotWaiter"]

POLL_SECONDS = 0.001
"""delay in noticing slots freed by other gateways"""
MAX_CANDIDATES = 64
"""waiters, from the first on, to choose from"""
MAX_YIELDS = 2
"""polls in which a free slot is left to a gateway with an older waiter: after them that gateway has
polled too, and does not use the slot"""
MAX_OVERTAKEN = 16
"""times that the first may be overtaken by waiters whose model a free instance holds"""
MIN_YIELD_LEAD_MICROSECONDS = 5_000
"""Lead of another gateway's waiter that makes ours yield. Yielding leaves a slot free for up to
POLL_SECONDS, so it must be rare."""


class SlotWaiter(Protocol):
    """A request that waits for a slot."""

    waiting_since: float
    """monotonic seconds, the same for all processes of a machine"""
    is_of_other_node: ClassVar[bool]
    """waits in another node, too, and is not to wait in a third"""

    @property
    def target_model(self) -> str | None: ...

    @property
    def pinned_instance(self) -> "RoutedInstance | None":
        """The only one that may answer."""

    @property
    def needs_instance(self) -> bool:
        """Whether another node may not choose the instance: the session is recorded here."""

    @property
    def is_plain(self) -> bool:
        """Whether any instance may answer as well as any other."""

    def can_use(self, instance: "RoutedInstance") -> bool: ...

    def prefers(self, instance: "RoutedInstance") -> bool:
        """Whether to overtake others for this instance."""

    def slot_available(self) -> None:
        """Removed from the queue: a usable instance is free."""

    def no_usable_instance(self) -> None:
        """Removed from the queue: no usable instance is left."""

    def slot_granted(self, instance: "RoutedInstance") -> None:
        """Removed from the queue: an instance of another node has a slot for this request."""

    @property
    def waits_for_start(self) -> bool:
        """Whether to wait although there is no usable instance."""


class SlotQueue:
    """First come, first served, here and, within milliseconds, across gateways.

    Gateways publish their oldest waiter in the in-flight table, under the lowest column of the
    variant's instances.
    """

    variant: "Variant"
    """of the current route table"""
    endpoint = ""
    starts: "Starts | None" = None
    """of a variant whose calls start instances"""
    start_failure: str | None = None
    """why the last instance that calls have started did not serve"""
    door: "DoorQueue | None" = None
    """where requests of other nodes wait"""

    def __init__(self, inflight: InflightTable) -> None:
        self._inflight = inflight
        # Read for each request: an attribute of the instance takes less than one of the class.
        self.remote: QueuePeers | None = None
        """where other nodes have instances"""
        self._waiting: OrderedDict[SlotWaiter, None] = OrderedDict()
        self._column: int | None = None
        self._overtaken = 0
        """times in a row that the first waiter was overtaken"""
        self._yields: int | None = None
        """polls since the free slot was left to another gateway; None: it is not"""
        self._is_serve_scheduled = False
        self._poll_timer: asyncio.TimerHandle | None = None

    @property
    def length(self) -> int:
        return len(self._waiting)

    @property
    def oldest_since(self) -> float:
        """Monotonic seconds; only while there are waiters."""
        return next(iter(self._waiting)).waiting_since

    def update(self, variant: "Variant") -> None:
        """Continues with the variant of a new route table."""
        self.variant = variant
        if self._inflight.is_shared:
            self._publish(None)
            instances = variant.instances
            columns = [each.column for each in instances if each.column is not None]
            self._column = min(columns, default=None)
            self._publish_oldest()
        if self.remote is not None:
            self.remote.update()
        self._reject_unservable(variant.instances)
        self.wake()

    def close(self) -> None:
        """Ends all waits, as the variant is gone."""
        self.starts = None
        self._publish(None)
        self._column = None
        self._reject_unservable(())

    def _reject_unservable(self, instances: Sequence["RoutedInstance"]) -> None:
        """Ends waits that no instance can satisfy."""
        for waiter in list(self._waiting):
            if self.starts is not None and waiter.waits_for_start:
                continue
            if self.remote is None or not instances:
                is_servable = any(map(waiter.can_use, instances))
            else:
                is_servable = self.remote.can_serve(waiter)
            if not is_servable and waiter in self._waiting:
                self._take_out(waiter)
                waiter.no_usable_instance()

    def reject_unservable(self) -> None:
        """Call when another node is lost."""
        self._reject_unservable(self.variant.instances)

    @property
    def must_queue(self) -> bool:
        """Whether new requests must queue, behind waiters here or elsewhere."""
        if self._waiting:
            return True
        column = self._column
        return column is not None and self._inflight.oldest_waiter_elsewhere(column) is not None

    def add(self, waiter: SlotWaiter, at_front: bool = False) -> None:
        """`at_front`: the waiter had a slot but could not use it."""
        self._waiting[waiter] = None
        if at_front:
            self._waiting.move_to_end(waiter, last=False)
        if self.starts is not None:
            self.starts.request(self)
        if self.remote is not None and not waiter.is_of_other_node:
            self.remote.reserve(waiter)
        self._publish_oldest()
        self.wake()

    def add_by_age(self, waiter: SlotWaiter) -> None:
        """Adds a request of another node before those that have waited less."""
        since = waiter.waiting_since
        younger = [each for each in self._waiting if each.waiting_since > since]
        self._waiting[waiter] = None
        for each in younger:
            self._waiting.move_to_end(each)
        self._publish_oldest()
        self.wake()

    def waiters(self) -> Sequence[SlotWaiter]:
        """Returns those that wait now, the first one first."""
        return tuple(self._waiting)

    def first_waiters(self, count: int) -> Iterator[SlotWaiter]:
        return islice(self._waiting, count)

    def remove(self, waiter: SlotWaiter) -> None:
        self._take_out(waiter)
        self._publish_oldest()

    def hand_over(self, waiter: SlotWaiter, instance: "RoutedInstance") -> None:
        """Gives a waiter the slot that another node has granted."""
        self._take_out(waiter)
        self._publish_oldest()
        waiter.slot_granted(instance)

    def _take_out(self, waiter: SlotWaiter) -> None:
        self._waiting.pop(waiter, None)
        if self.remote is not None:
            self.remote.left(waiter)

    def wake(self) -> None:
        """Looks for free slots in the loop's next turn."""
        if self._waiting and not self._is_serve_scheduled:
            self._is_serve_scheduled = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self._is_serve_scheduled = False
        while self._waiting:
            free = [instance for instance in self.variant.local if instance.is_free]
            if free and self._yields_slot():
                break
            self._yields = None
            chosen = self._choose(free) if free else None
            if chosen is None:
                break
            self._take_out(chosen)
            if self.door is not None:
                self.door.slot_ended(len(self._waiting))
            chosen.slot_available()
        if self.door is not None:
            self.door.grant_early()
        self._publish_oldest()
        self._schedule_poll()

    def _yields_slot(self) -> bool:
        """Whether another gateway may have the free slot."""
        if not self._is_older_elsewhere():
            return False
        self._yields = self._yields or 0
        return self._yields < MAX_YIELDS

    def _choose(self, free: Sequence["RoutedInstance"]) -> SlotWaiter | None:
        """Returns the first waiter that may use one of `free`, or a later one that prefers it."""
        first = None
        for waiter in islice(self._waiting, MAX_CANDIDATES):
            usable = [instance for instance in free if waiter.can_use(instance)]
            if not usable:
                continue
            if any(map(waiter.prefers, usable)):
                self._overtaken = 0 if first is None else self._overtaken + 1
                return waiter
            if first is None:
                first = waiter
                if self._overtaken >= MAX_OVERTAKEN:
                    break
        self._overtaken = 0
        return first

    def _schedule_poll(self) -> None:
        if self._waiting and self._poll_timer is None and self._inflight.is_shared:
            loop = asyncio.get_running_loop()
            self._poll_timer = loop.call_later(POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        self._poll_timer = None
        if self._yields is not None:
            self._yields += 1
        self._serve()

    def _is_older_elsewhere(self) -> bool:
        oldest = self._oldest_elsewhere()
        if oldest is None:
            return False
        first = next(iter(self._waiting))
        return oldest + MIN_YIELD_LEAD_MICROSECONDS < _microseconds(first)

    def _oldest_elsewhere(self) -> int | None:
        column = self._column
        return None if column is None else self._inflight.oldest_waiter_elsewhere(column)

    def _publish_oldest(self) -> None:
        if self._column is not None:
            first = next(iter(self._waiting), None)
            self._publish(None if first is None else _microseconds(first))

    def _publish(self, since: int | None) -> None:
        if self._column is not None:
            self._inflight.publish_oldest_waiter(self._column, since)


def _microseconds(waiter: SlotWaiter) -> int:
    return max(1, int(waiter.waiting_since * 1e6))
