"""The objects that all invocations of a gateway share, its active requests, and the memory that
bodies may take."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile
from typing import Any, Protocol

from sagehen.base.clock import Clock
from sagehen.frame.routing import Random
from sagehen.gateway.admission.admission import Admission
from sagehen.gateway.admission.errors import (
    ErrorFactory,
    body_too_large,
    error_body,
    unavailable,
)
from sagehen.gateway.client.limits import InvocationLimits, Limit, LimitHits
from sagehen.gateway.container.answer import ContainerAnswer
from sagehen.gateway.invocation.phases import Phased
from sagehen.gateway.metrics.request_metrics import CUT_OFF, AccessLog, RequestMetrics
from sagehen.gateway.multimodel.model_leases import ModelLeases
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.gateway.routing.placement import PlacementCallbacks
from sagehen.gateway.routing.sessions import Sessions
from sagehen.gateway.routing.shadow import Shadows
from sagehen.http1.client import Receiver
from sagehen.http1.exchange import Exchange
from sagehen.link.upstream import Upstream
from sagehen.wire.errors import AwsError

__all__ = [
    "ActiveRequests",
    "BodyMemory",
    "InvocationCallbacks",
    "InvocationContext",
    "LoggedRequest",
    "RequestBody",
]


class InvocationCallbacks(PlacementCallbacks, Receiver, Protocol):
    """An invocation, as its helpers call it."""

    deadline: float
    """monotonic seconds"""
    start_deadline: float
    """until when it may wait for instances to start; 0 before it does"""

    # Called by ActiveRequests

    def expire(self) -> None: ...

    def shut_down(self) -> None: ...

    # Called by the wait for a model

    def model_loading(self) -> None: ...

    def model_ready(self, model_name: str) -> None: ...

    def fail_with_answer(self, status: int, body: bytes, whole: bool) -> None: ...

    def place_again(self) -> None:
        """The instance lacks the model; another may be chosen."""

    @property
    def must_stay_on_instance(self) -> bool:
        """Whether a container of the instance has worked on the request already."""

    # Called by the pipeline

    def sent_to_last(self, upstream: Upstream) -> None: ...

    def unsuccessful(self, answer: ContainerAnswer) -> None: ...

    def unanswered(self) -> None:
        """The current container was lost."""

    def fail_by_model(self, status: int, error: AwsError) -> None:
        """Ends with an error of the container. `status`: what the failure counts as."""

    # Called by both

    def refused(self) -> None:
        """The current container provably did not begin."""

    def fail(self, error: AwsError) -> None: ...


class InFlight(Protocol):
    """Counts the requests to a variant."""

    def enter(self) -> None: ...

    def leave(self) -> None: ...


class ActiveRequests:
    """Invocations in flight, bounded in number and time."""

    def __init__(self, limits: InvocationLimits, limit_hits: LimitHits, clock: Clock) -> None:
        self._limits = limits
        self._limit_hits = limit_hits
        self._monotonic = clock.monotonic
        self._answering: dict[InvocationCallbacks, InFlight] = {}
        """in the order of deadlines, as all have the same time-out"""
        self._streaming: dict[InvocationCallbacks, InFlight] = {}
        """answers being streamed, in the order of deadlines"""
        self._starting: dict[InvocationCallbacks, InFlight] = {}
        """waiting for an instance to start, in the order of deadlines"""
        self.on_first: Callable[[], None] = lambda: None
        """called when an invocation arrives while no other waits for an answer"""

    def __len__(self) -> int:
        return len(self._answering) + len(self._streaming) + len(self._starting)

    def check_limit(self) -> None:
        """Raises AwsError if there are too many."""
        if len(self._answering) + len(self._streaming) >= self._limits.invocations:
            self._limit_hits[Limit.QUEUE] += 1
            raise unavailable(
                f"This gateway works on {self._limits.invocations} invocations already "
                "(max_queued_invocations). Try again in a moment."
            )

    def add(self, invocation: InvocationCallbacks, in_flight: InFlight) -> None:
        """`in_flight`: of the variant."""
        if not self._answering:
            self.on_first()
        self._answering[invocation] = in_flight
        in_flight.enter()

    def begin_stream(self, invocation: InvocationCallbacks) -> None:
        """Gives a begun answer the time-out of a stream."""
        in_flight = self._answering.pop(invocation, None)
        if in_flight is not None:
            invocation.deadline = self._monotonic() + self._limits.stream_seconds
            self._streaming[invocation] = in_flight

    def begin_start(self, invocation: InvocationCallbacks) -> None:
        """Gives an invocation time until its instance has started; once only, as an instance may
        start and be lost again and again."""
        in_flight = self._answering.pop(invocation, None)
        if in_flight is None:
            return
        waits_again = invocation.start_deadline > 0
        if not waits_again:
            invocation.start_deadline = self._monotonic() + self._limits.start_seconds
        invocation.deadline = invocation.start_deadline
        self._starting[invocation] = in_flight
        if waits_again:
            self._starting = dict(
                sorted(self._starting.items(), key=lambda waiting: waiting[0].deadline)
            )

    def end_start(self, invocation: InvocationCallbacks) -> None:
        """Gives it the time that a container may take."""
        in_flight = self._starting.pop(invocation, None)
        if in_flight is not None:
            invocation.deadline = self._monotonic() + self._limits.seconds
            self._answering[invocation] = in_flight

    def remove(self, invocation: InvocationCallbacks) -> None:
        in_flight = (
            self._answering.pop(invocation, None)
            or self._streaming.pop(invocation, None)
            or self._starting.pop(invocation, None)
        )
        if in_flight is not None:
            in_flight.leave()

    def expire(self) -> None:
        """Ends overdue invocations; call several times a second."""
        now = self._monotonic()
        for group in (self._answering, self._streaming, self._starting):
            for invocation in _overdue(group, now):
                invocation.expire()

    def shut_down(self) -> None:
        """Cuts off streamed answers; ends waits for a start."""
        for invocation in list(self._starting):
            invocation.expire()
        for invocation in list(self._streaming):
            invocation.shut_down()


def _overdue(invocations: Iterable[InvocationCallbacks], now: float) -> list[InvocationCallbacks]:
    return list(takewhile(lambda invocation: invocation.deadline <= now, invocations))


class BodyMemory:
    """Counts the bytes of all bodies in memory."""

    def __init__(self, max_bytes: int) -> None:
        self.bytes = 0
        self.max_bytes = max_bytes


_JOINED_PART_BYTES = 4 * 1024
"""Smaller pieces are joined up to this: each takes some 40 bytes more than BodyMemory counts."""


class RequestBody:
    """A request body in pieces, until `drop`."""

    __slots__ = ("_digest", "_memory", "parts", "size")

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self._digest: Any = None
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> None:
        # Hashed piece by piece, so that a large body never blocks the loop.
        if self.parts:
            if self._digest is None:
                self._digest = sha256(self.parts[0])
            self._digest.update(data)
        self.add_unhashed(data)

    def add_unhashed(self, data: bytes) -> None:
        self.size += len(data)
        self._memory.bytes += len(data)
        parts = self.parts
        if parts and len(parts[-1]) + len(data) <= _JOINED_PART_BYTES:
            parts[-1] += data
        else:
            parts.append(data)

    def sha256(self) -> str:
        if self._digest is not None:
            return str(self._digest.hexdigest())
        return sha256(self.parts[0] if self.parts else b"").hexdigest()

    def drop(self) -> None:
        self._memory.bytes -= self.size
        self.size = 0
        self.parts = []


@dataclass(frozen=True, kw_only=True, slots=True)
class InvocationContext:
    """The shared objects that every invocation uses."""

    admission: Admission
    stream_admission: Admission
    models: ModelLeases
    sessions: Sessions
    shadows: Shadows
    errors: ErrorFactory
    active: ActiveRequests
    body_memory: BodyMemory
    limits: InvocationLimits
    limit_hits: LimitHits
    access_log: AccessLog | None
    monotonic: Callable[[], float]
    now: Callable[[], float]
    """seconds since the epoch"""
    end_reason: Callable[[RoutedInstance], str | None]
    """why the container ended; "" if unknown, None if not known yet"""
    random: Random
    """returns a number in [0, 1)"""

    def check_size(self, body_bytes: int, request_id: bytes) -> None:
        """Raises AwsError if this body or all together are too large."""
        memory = self.body_memory
        if memory.bytes > memory.max_bytes:
            self.limit_hits[Limit.BODIES] += 1
            raise unavailable("This gateway holds all the data it can. Try again in a moment.")
        if body_bytes > self.limits.body_bytes:
            self.limit_hits[Limit.BODY_SIZE] += 1
            raise body_too_large(request_id.decode(), self.limits.body_bytes)


class LoggedRequest(Phased):
    """The lines of one request in the access log."""

    _exchange: Exchange
    _context: InvocationContext
    _body: RequestBody
    _metrics: RequestMetrics
    _answer: ContainerAnswer

    def _log(self, status: int | str, answer_bytes: int) -> None:
        """Must be called before the body is dropped."""
        if self._context.access_log is not None:
            self._metrics.log(status, self._exchange, self._body.size, answer_bytes)

    def _log_error(self, error: AwsError) -> None:
        if self._exchange.begun:
            self._log(CUT_OFF, self._relayed_bytes)
        elif self._context.access_log is not None:
            self._log(error.status or 400, len(error_body(error)))

    @property
    def _relayed_bytes(self) -> int:
        return self._answer.size if self._exchange.begun else 0
