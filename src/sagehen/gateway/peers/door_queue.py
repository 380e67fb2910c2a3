"""Requests of other nodes in a queue of this one."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sagehen.gateway.peers.credits import EarlyGrants
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.gateway.routing.placement import Placement

if TYPE_CHECKING:
    from sagehen.gateway.peers.door_invocation import DoorInvocation
    from sagehen.gateway.routing.slot_queue import SlotQueue

__all__ = ["DoorPlacement", "DoorQueue", "door_queue"]

MAX_CANDIDATES = 64
"""waiters, from the first on, that may be granted a slot early"""


class DoorPlacement(Placement):
    """Places a request of another node on this node's instances, by the age it has there."""

    is_of_other_node = True
    is_granted = False
    """the other node may send the request"""
    _owner: "DoorInvocation"

    def find(self) -> None:
        if not self._untried():
            self._owner.no_instance_left()
        elif not self.find_now():
            self._wait_in_queue()

    def find_now(self) -> bool:
        """Returns whether there was a free slot, and nobody who waits for it."""
        queue = self._admitted.variant.slot_queue
        instance = None if queue.must_queue else self._choose(self._untried())
        if instance is None:
            return False
        self._take(instance)
        return True

    @property
    def can_be_granted_early(self) -> bool:
        return self.is_plain and not self.is_granted

    def grant_early(self) -> None:
        self._owner.grant_early()

    def _wait_in_queue(self) -> None:
        self._begin_wait()
        self._admitted.variant.slot_queue.add_by_age(self)

    def can_use(self, instance: RoutedInstance) -> bool:
        return not instance.is_remote and super().can_use(instance)

    def prefers(self, instance: RoutedInstance) -> bool:
        target_model = self._admitted.target_model
        if target_model is None:
            return True
        first = self._admitted.variant.slot_queue.variant.of_this_node().ranked(target_model)[0]
        return instance is first or self._models.holds(instance.model_holder_id, target_model)

    def _untried(self) -> Sequence[RoutedInstance]:
        if self._admitted.instance is not None:
            return super()._untried()
        variant = self._admitted.variant.slot_queue.variant.of_this_node()
        target_model = self._admitted.target_model
        instances: Sequence[RoutedInstance] = variant.instances
        if target_model is not None and len(instances) > 1:
            instances = variant.ranked(target_model)
        if self._tried:
            instances = [instance for instance in instances if instance not in self._tried]
        return instances


class DoorQueue:
    """Grants slots of one queue before they are free."""

    def __init__(self, queue: "SlotQueue", monotonic: Callable[[], float]) -> None:
        self._queue = queue
        self._monotonic = monotonic
        self.early = EarlyGrants()

    def slot_ended(self, waiting: int) -> None:
        """A slot became free and was taken; `waiting` requests still wait."""
        self.early.ended(self._monotonic(), waiting)

    def grant_early(self) -> None:
        candidates: list[DoorPlacement] = []
        granted = 0
        for waiter in self._queue.first_waiters(MAX_CANDIDATES):
            if not isinstance(waiter, DoorPlacement):
                continue
            if waiter.is_granted:
                granted += 1
            elif waiter.can_be_granted_early:
                candidates.append(waiter)
        if not candidates:
            return
        now = self._monotonic()
        slots = sum(instance.slots for instance in self._queue.variant.local)
        for waiter in candidates:
            if granted >= self.early.allowed(now - waiter.waiting_since, slots):
                return
            granted += 1
            waiter.grant_early()


def door_queue(placement: Placement, monotonic: Callable[[], float]) -> DoorQueue:
    """Returns that of the placement's queue, which is made for the first reservation."""
    queue = placement.slot_queue
    if queue.door is None:
        queue.door = DoorQueue(queue, monotonic)
    return queue.door
