"""Limits the memory of large bodies; others wait, unread."""

from collections import deque
from collections.abc import Callable

__all__ = ["Reservation", "ServingBodyBudget"]


class Reservation:
    """Holds memory from when a body's length is known until its request is answered."""

    def __init__(self, room: "ServingBodyBudget", size: int, on_entry: Callable[[], None]) -> None:
        self.size = size
        self.on_entry = on_entry
        self.entered = False
        self._room = room

    def leave(self) -> None:
        """Releases the memory or stops waiting; repeated calls do nothing."""
        self._room.left(self)


class ServingBodyBudget:
    """Admits bodies first come, first served; a lone one at any size."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._inside: set[Reservation] = set()
        self.taken = 0
        """Bytes."""
        self._waiting: deque[Reservation] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def enter(self, size: int, on_entry: Callable[[], None]) -> Reservation:
        """Calls `on_entry` once memory is granted, unless that is at once."""
        stay = Reservation(self, size, on_entry)
        if not self._waiting and self._fits(stay):
            self._let_in(stay)
        else:
            self._waiting.append(stay)
        return stay

    def left(self, stay: Reservation) -> None:
        if stay in self._inside:
            self._inside.remove(stay)
            self.taken -= stay.size
        elif stay in self._waiting:
            self._waiting.remove(stay)
        while self._waiting and self._fits(self._waiting[0]):
            next_one = self._waiting.popleft()
            self._let_in(next_one)
            next_one.on_entry()

    def _fits(self, stay: Reservation) -> bool:
        return not self._inside or self.taken + stay.size <= self.most_bytes

    def _let_in(self, stay: Reservation) -> None:
        stay.entered = True
        self._inside.add(stay)
        self.taken += stay.size
