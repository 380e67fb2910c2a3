"""The invocations that are worked on now: so many at once, and each for so long."""

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Protocol

from sagehen.clock import Clock
from sagehen.gateway.counters import InFlight
from sagehen.gateway.faults import unavailable
from sagehen.gateway.limits import InvocationLimits, Limit, LimitHits

__all__ = ["Expiring", "Live"]


class Expiring(Protocol):
    deadline: float

    def expire(self) -> None: ...

    def shut_down(self) -> None: ...


class Live:
    """One per process."""

    def __init__(self, limits: InvocationLimits, limit_hits: LimitHits, clock: Clock) -> None:
        self._limits = limits
        self._limit_hits = limit_hits
        self._monotonic = clock.monotonic
        self._answering: dict[Expiring, InFlight] = {}
        """In the order of their deadlines, as all have the same time."""
        self._streaming: dict[Expiring, InFlight] = {}
        """Those whose answer has begun to be streamed; in the same order."""
        self.on_first: Callable[[], None] = lambda: None
        """Called when one comes while no other is waited for."""

    def __len__(self) -> int:
        return len(self._answering) + len(self._streaming)

    def check_room(self) -> None:
        """Raises AwsError: no more invocations may be held now."""
        if len(self) >= self._limits.invocations:
            self._limit_hits[Limit.QUEUE] += 1
            raise unavailable(
                f"This gateway works on {self._limits.invocations} invocations already "
                "(max_queued_invocations). Try again in a moment."
            )

    def enter(self, invocation: Expiring, in_flight: InFlight) -> None:
        """`invocation` is worked on from now until `leave`; `in_flight` counts its variant's."""
        if not self._answering:
            self.on_first()
        self._answering[invocation] = in_flight
        in_flight.enter()

    def enter_stream(self, invocation: Expiring) -> None:
        """Its answer has begun: from here on it has the time of a stream."""
        in_flight = self._answering.pop(invocation, None)
        if in_flight is not None:
            invocation.deadline = self._monotonic() + self._limits.stream_seconds
            self._streaming[invocation] = in_flight

    def leave(self, invocation: Expiring) -> None:
        in_flight = self._answering.pop(invocation, None) or self._streaming.pop(invocation, None)
        if in_flight is not None:
            in_flight.leave()

    def expire(self) -> None:
        """End the invocations whose time is over. To be called several times a second."""
        now = self._monotonic()
        for invocation in (*_overdue(self._answering, now), *_overdue(self._streaming, now)):
            invocation.expire()

    def shut_down(self) -> None:
        """Cut off the answers that are still being streamed."""
        for invocation in list(self._streaming):
            invocation.shut_down()


def _overdue(live: Iterable[Expiring], now: float) -> list[Expiring]:
    return list(takewhile(lambda invocation: invocation.deadline <= now, live))
