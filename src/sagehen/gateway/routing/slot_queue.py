"""Requests of a variant that wait for a free slot."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from sagehen.gateway.routing.inflight import InflightTable

if TYPE_CHECKING:
    from sagehen.gateway.routing.instance import RoutedInstance
    from sagehen.gateway.routing.routes import Variant

__all__ = ["SlotQueue", "Waiter"]

LOOK_SECONDS = 0.001
"""delay in noticing slots freed by other gateways"""
LOOKED_AT = 64
"""waiters, from the first on, to choose from"""
LOOKS_GIVEN = 2
"""times that a free slot is left to a gateway with an older waiter: then that gateway has looked
too, and does not use it"""
MOST_PASSED = 16
"""times that the first may be overtaken by waiters whose model a free instance holds"""
YIELD_MICROSECONDS = 5_000
"""Lead of another gateway's waiter that makes ours yield. Yielding leaves a slot free for up to
LOOK_SECONDS, so it must be rare."""


class Waiter(Protocol):
    """A request that waits for a slot."""

    waiting_since: float
    """monotonic seconds, the same for all processes of a machine"""

    def may_go_to(self, instance: "RoutedInstance") -> bool: ...

    def prefers(self, instance: "RoutedInstance") -> bool:
        """Whether to overtake others for this instance."""

    def slot_free(self) -> None:
        """Removed from the queue: a usable instance is free."""

    def line_ends(self) -> None:
        """Removed from the queue: no usable instance is left."""


class SlotQueue:
    """First come, first served, here and, within milliseconds, across gateways.

    Gateways publish their oldest waiter in the in-flight table, under the lowest column of the
    variant's instances.
    """

    variant: "Variant"
    """of the current route table"""

    def __init__(self, board: InflightTable) -> None:
        self._board = board
        self._waiting: OrderedDict[Waiter, None] = OrderedDict()
        self._column: int | None = None
        self._passed = 0
        self._looks_given: int | None = None
        self._woken = False
        self._looking: asyncio.TimerHandle | None = None

    @property
    def length(self) -> int:
        return len(self._waiting)

    def follow(self, variant: "Variant") -> None:
        self.variant = variant
        if self._board.shared:
            self._tell(None)
            columns = [one.column for one in variant.instances if one.column is not None]
            self._column = min(columns, default=None)
            self._tell_first()
        self._turn_away(variant.instances)
        self.wake()

    def end(self) -> None:
        """The variant is gone."""
        self._tell(None)
        self._column = None
        self._turn_away(())

    def _turn_away(self, instances: Sequence["RoutedInstance"]) -> None:
        """Ends waits that no instance can satisfy."""
        for one in list(self._waiting):
            if not any(map(one.may_go_to, instances)):
                del self._waiting[one]
                one.line_ends()

    @property
    def taken(self) -> bool:
        """Whether new requests must queue, behind waiters here or elsewhere."""
        return bool(self._waiting) or self._oldest_elsewhere() is not None

    def join(self, one: Waiter, again: bool = False) -> None:
        """`again`: goes first, as it had a slot but could not use it."""
        self._waiting[one] = None
        if again:
            self._waiting.move_to_end(one, last=False)
        self._tell_first()
        self.wake()

    def leave(self, one: Waiter) -> None:
        self._waiting.pop(one, None)
        self._tell_first()

    def wake(self) -> None:
        """Looks for free slots in the loop's next turn."""
        if self._waiting and not self._woken:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self._woken = False
        while self._waiting:
            free = [one for one in self.variant.instances if one.is_free]
            if free and self._gives_way():
                break
            self._looks_given = None
            chosen = self._choose(free) if free else None
            if chosen is None:
                break
            del self._waiting[chosen]
            chosen.slot_free()
        self._tell_first()
        self._look_again()

    def _gives_way(self) -> bool:
        """Whether another gateway may have the free slot."""
        if not self._is_longer_elsewhere():
            return False
        self._looks_given = self._looks_given or 0
        return self._looks_given < LOOKS_GIVEN

    def _choose(self, free: Sequence["RoutedInstance"]) -> Waiter | None:
        """Returns the first waiter that may use one of `free`, or a later one that prefers it."""
        first = None
        for one in islice(self._waiting, LOOKED_AT):
            usable = [instance for instance in free if one.may_go_to(instance)]
            if not usable:
                continue
            if any(map(one.prefers, usable)):
                self._passed = 0 if first is None else self._passed + 1
                return one
            if first is None:
                first = one
                if self._passed >= MOST_PASSED:
                    break
        self._passed = 0
        return first

    def _look_again(self) -> None:
        if self._waiting and self._looking is None and self._board.shared:
            loop = asyncio.get_running_loop()
            self._looking = loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._looking = None
        if self._looks_given is not None:
            self._looks_given += 1
        self._serve()

    def _is_longer_elsewhere(self) -> bool:
        oldest = self._oldest_elsewhere()
        if oldest is None:
            return False
        return oldest + YIELD_MICROSECONDS < _microseconds(next(iter(self._waiting)))

    def _oldest_elsewhere(self) -> int | None:
        return None if self._column is None else self._board.oldest_elsewhere(self._column)

    def _tell_first(self) -> None:
        if self._column is not None:
            first = next(iter(self._waiting), None)
            self._tell(None if first is None else _microseconds(first))

    def _tell(self, since: int | None) -> None:
        if self._column is not None:
            self._board.wait_since(self._column, since)


def _microseconds(one: Waiter) -> int:
    return max(1, int(one.waiting_since * 1e6))
