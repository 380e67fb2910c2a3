"""Limits the memory of large bodies; others wait, unread."""

from collections import deque
from collections.abc import Callable

__all__ = ["BodyReservation", "ServingBodyBudget"]


class BodyReservation:
    """Holds memory from when a body's length is known until its request is answered."""

    def __init__(
        self, budget: "ServingBodyBudget", size: int, on_grant: Callable[[], None]
    ) -> None:
        self.size = size
        self.on_grant = on_grant
        self.granted = False
        self._budget = budget

    def release(self) -> None:
        """Releases the memory or stops waiting; repeated calls do nothing."""
        self._budget.released(self)


class ServingBodyBudget:
    """Admits bodies first come, first served; a lone one at any size."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._granted: set[BodyReservation] = set()
        self.reserved_bytes = 0
        self._waiting: deque[BodyReservation] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def reserve(self, size: int, on_grant: Callable[[], None]) -> BodyReservation:
        """Calls `on_grant` once memory is granted, unless that is at once."""
        reservation = BodyReservation(self, size, on_grant)
        if not self._waiting and self._fits(reservation):
            self._grant(reservation)
        else:
            self._waiting.append(reservation)
        return reservation

    def released(self, reservation: BodyReservation) -> None:
        if reservation in self._granted:
            self._granted.remove(reservation)
            self.reserved_bytes -= reservation.size
        elif reservation in self._waiting:
            self._waiting.remove(reservation)
        while self._waiting and self._fits(self._waiting[0]):
            first = self._waiting.popleft()
            self._grant(first)
            first.on_grant()

    def _fits(self, reservation: BodyReservation) -> bool:
        return not self._granted or self.reserved_bytes + reservation.size <= self.most_bytes

    def _grant(self, reservation: BodyReservation) -> None:
        reservation.granted = True
        self._granted.add(reservation)
        self.reserved_bytes += reservation.size
