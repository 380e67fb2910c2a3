"""State shared by all invocations of this process: requests in flight, bodies, limits."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile
from typing import Any, Protocol

from sagehen.base.clock import Clock
from sagehen.frame.routing import Random
from sagehen.gateway.admission.admission import Admission
from sagehen.gateway.admission.errors import Texts, unavailable
from sagehen.gateway.client.limits import InvocationLimits, Limit, LimitHits
from sagehen.gateway.metrics.counters import InFlightCounter
from sagehen.gateway.metrics.request_metrics import AccessLog
from sagehen.gateway.multimodel.models import LoadedModels
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.gateway.routing.sessions import Sessions
from sagehen.gateway.routing.shadow import Shadows

__all__ = ["ActiveRequests", "Body", "Expiring", "Held", "Invoker"]


class Expiring(Protocol):
    deadline: float

    def expire(self) -> None: ...

    def shut_down(self) -> None: ...


class ActiveRequests:
    """Invocations in flight, bounded in number and time."""

    def __init__(self, limits: InvocationLimits, limit_hits: LimitHits, clock: Clock) -> None:
        self._limits = limits
        self._limit_hits = limit_hits
        self._monotonic = clock.monotonic
        self._answering: dict[Expiring, InFlightCounter] = {}
        """in the order of deadlines, as all have the same time-out"""
        self._streaming: dict[Expiring, InFlightCounter] = {}
        """answers being streamed, in the order of deadlines"""
        self.on_first: Callable[[], None] = lambda: None
        """called when an invocation arrives while no other waits for an answer"""

    def __len__(self) -> int:
        return len(self._answering) + len(self._streaming)

    def check_room(self) -> None:
        """Raises AwsError if there are too many."""
        if len(self) >= self._limits.invocations:
            self._limit_hits[Limit.QUEUE] += 1
            raise unavailable(
                f"This gateway works on {self._limits.invocations} invocations already "
                "(max_queued_invocations). Try again in a moment."
            )

    def enter(self, invocation: Expiring, in_flight: InFlightCounter) -> None:
        """`in_flight`: of the variant."""
        if not self._answering:
            self.on_first()
        self._answering[invocation] = in_flight
        in_flight.enter()

    def enter_stream(self, invocation: Expiring) -> None:
        """Gives a begun answer the time-out of a stream."""
        in_flight = self._answering.pop(invocation, None)
        if in_flight is not None:
            invocation.deadline = self._monotonic() + self._limits.stream_seconds
            self._streaming[invocation] = in_flight

    def leave(self, invocation: Expiring) -> None:
        in_flight = self._answering.pop(invocation, None) or self._streaming.pop(invocation, None)
        if in_flight is not None:
            in_flight.leave()

    def expire(self) -> None:
        """Ends overdue invocations; call several times a second."""
        now = self._monotonic()
        for invocation in (*_overdue(self._answering, now), *_overdue(self._streaming, now)):
            invocation.expire()

    def shut_down(self) -> None:
        """Cuts off streamed answers."""
        for invocation in list(self._streaming):
            invocation.shut_down()


def _overdue(live: Iterable[Expiring], now: float) -> list[Expiring]:
    return list(takewhile(lambda invocation: invocation.deadline <= now, live))


class Held:
    """Counts the bytes of all bodies in memory."""

    def __init__(self, most_bytes: int) -> None:
        self.bytes = 0
        self.most_bytes = most_bytes

    @property
    def is_full(self) -> bool:
        return self.bytes > self.most_bytes


class Body:
    """A request body in pieces, until `drop`."""

    __slots__ = ("_digest", "_held", "parts", "size")

    def __init__(self, held: Held) -> None:
        self._held = held
        self._digest: Any = None
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self._held.bytes += len(data)
        # Hashed piece by piece, so that a large body never blocks the loop.
        if self.parts:
            if self._digest is None:
                self._digest = sha256(self.parts[0])
            self._digest.update(data)
        self.parts.append(data)

    def keep(self, data: bytes) -> None:
        """Like `add`, without the digest."""
        self.size += len(data)
        self._held.bytes += len(data)
        self.parts.append(data)

    def sha256(self) -> str:
        if self._digest is not None:
            return str(self._digest.hexdigest())
        return sha256(self.parts[0] if self.parts else b"").hexdigest()

    def drop(self) -> None:
        self._held.bytes -= self.size
        self.size = 0
        self.parts = []


@dataclass(frozen=True, kw_only=True, slots=True)
class Invoker:
    """The shared objects that every invocation uses."""

    admission: Admission
    stream_admission: Admission
    models: LoadedModels
    sessions: Sessions
    shadows: Shadows
    texts: Texts
    live: ActiveRequests
    held: Held
    limits: InvocationLimits
    limit_hits: LimitHits
    access_log: AccessLog | None
    monotonic: Callable[[], float]
    why_ended: Callable[[RoutedInstance], str | None]
    """the container's end; "" if unknown, None if not known yet"""
    random: Random
    """in [0, 1)"""
