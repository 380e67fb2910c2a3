"""The requests of one variant that found no free slot: each goes to whatever frees first."""

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
"""How soon a slot that another gateway freed is noticed, while anybody waits."""
LOOKED_AT = 64
"""How many who wait, from the first on, may be chosen from."""
LOOKS_GIVEN = 2
"""How often this line looks at a free slot that it leaves to a gateway where somebody has waited
longer, before it takes it: by then the other has looked too, and does not want it."""
MOST_PASSED = 16
"""How often others may go before the first because a free instance holds their model."""
YIELD_MICROSECONDS = 5_000
"""By how much longer a request must have waited at another gateway to go before those here. Each
time a slot stays free for up to LOOK_SECONDS, so that they do not take turns for every request."""


class Waiter(Protocol):
    """A request that waits for a slot."""

    waiting_since: float
    """Monotonic seconds; the same for all processes of a machine."""

    def may_go_to(self, instance: "RoutedInstance") -> bool: ...

    def prefers(self, instance: "RoutedInstance") -> bool:
        """It is worth waiting a little for this one."""

    def slot_free(self) -> None:
        """It is not in the line any more: at least one that it may go to has a free slot."""

    def line_ends(self) -> None:
        """It is not in the line any more: there is none left that it may go to."""


class SlotQueue:
    """First come, first served, at this gateway and, within some milliseconds, over all.

    The gateways tell each other by the board since when the first of each line has waited: under
    the lowest column of the variant's instances, on which they all agree.
    """

    variant: "Variant"
    """As of the table in force."""

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
        """How many wait."""
        return len(self._waiting)

    def follow(self, variant: "Variant") -> None:
        """There is a new table."""
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
        """Nobody waits for what cannot come."""
        for one in list(self._waiting):
            if not any(map(one.may_go_to, instances)):
                del self._waiting[one]
                one.line_ends()

    @property
    def taken(self) -> bool:
        """Somebody waits already, here or at another gateway: who comes now goes behind."""
        return bool(self._waiting) or self._oldest_elsewhere() is not None

    def join(self, one: Waiter, again: bool = False) -> None:
        """`again`: it had a slot already, without use; it goes before the others."""
        self._waiting[one] = None
        if again:
            self._waiting.move_to_end(one, last=False)
        self._tell_first()
        self.wake()

    def leave(self, one: Waiter) -> None:
        self._waiting.pop(one, None)
        self._tell_first()

    def wake(self) -> None:
        """Something may be free: look in the next turn of the event loop."""
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
        """Whether a free slot is left to another gateway for now."""
        if not self._is_longer_elsewhere():
            return False
        self._looks_given = self._looks_given or 0
        return self._looks_given < LOOKS_GIVEN

    def _choose(self, free: Sequence["RoutedInstance"]) -> Waiter | None:
        """The first who may go to one of `free`, but before it one that prefers it."""
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
