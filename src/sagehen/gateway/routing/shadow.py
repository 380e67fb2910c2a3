"""Copies of requests for shadow variants.

Copies have their own limits and their answers are dropped, so a slow, full or broken shadow takes
nothing from production. Each counts as an invocation, or as dropped if never sent.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sagehen.base.clock import Clock
from sagehen.frame.routing import Random
from sagehen.gateway.admission.admission import Admitted
from sagehen.gateway.client.limits import ClientLimits, Limit, LimitHits
from sagehen.gateway.container.answer import is_not_started
from sagehen.gateway.invocation.phases import (
    ANSWERED,
    CONNECTING,
    COPY_MOVES,
    DONE,
    PLACING,
    SENT,
    Phased,
)
from sagehen.gateway.metrics.request_metrics import RequestMetrics
from sagehen.gateway.multimodel.model_leases import ModelLeases
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.gateway.routing.placement import Placement
from sagehen.gateway.routing.slot_queue import SlotQueue
from sagehen.http1.fields import Headers
from sagehen.link.upstream import INVOCATIONS, Upstream

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["Shadows"]

MAX_SHARE_PER_SHADOW = 0.25
"""of the bytes: a hanging shadow leaves room for the others"""


@dataclass(slots=True)
class _Copies:
    """The copies for one shadow, or for all."""

    copies: set["_Copy"] = field(default_factory=set)
    size: int = 0
    """of bodies"""

    def add(self, copy: "_Copy") -> None:
        self.copies.add(copy)
        self.size += copy.size

    def remove(self, copy: "_Copy") -> None:
        self.copies.remove(copy)
        self.size -= copy.size

    def can_add(self, size: int, max_copies: int, max_bytes: float) -> bool:
        return len(self.copies) < max_copies and self.size + size <= max_bytes


class Shadows:
    """All copies, within limits. `random` returns numbers in [0, 1)."""

    def __init__(
        self,
        settings: "Settings",
        clock: Clock,
        random: Random,
        models: ModelLeases,
        limit_hits: LimitHits,
    ) -> None:
        self.random = random
        self.models = models
        self.monotonic = clock.monotonic
        self.timeout_seconds = settings.invocation_timeout_seconds
        self.stream_timeout_seconds = settings.response_stream_timeout_seconds
        self._limit_hits = limit_hits
        # Each may have a connection, as a client may.
        self._max_copies = ClientLimits.of(settings).connections
        self._max_copies_per_shadow = settings.max_shadow_copies
        self._max_bytes = settings.max_shadow_body_bytes
        self._all = _Copies()
        self._by_shadow: dict[SlotQueue, _Copies] = {}
        """by queue, which survives new route tables"""

    def __len__(self) -> int:
        return len(self._all.copies)

    def copy(self, admitted: Admitted, parts: Sequence[bytes], streamed: bool) -> None:
        """Copies a request to its endpoint's shadow, if sampled.

        Sends in the event loop's next turn, after the request itself. `streamed`: a begun answer
        gets a stream's time-out.
        """
        endpoint = admitted.endpoint
        shadow = endpoint.shadow
        # Only one production instance knows the session.
        if shadow is None or admitted.session_id is not None:
            return
        if self.random() >= endpoint.shadow_share:
            return
        size = sum(map(len, parts))
        copies = self._by_shadow.get(shadow.slot_queue) or _Copies()
        if not self._can_add(copies, size):
            self._limit_hits[Limit.SHADOW_COPIES] += 1
            shadow.counters.shadow_copies_dropped += 1
            return
        copied = Admitted(endpoint, shadow, admitted.header_lines, None)
        copy = _Copy(self, copied, tuple(parts), size, streamed)
        self._by_shadow[shadow.slot_queue] = copies
        copies.add(copy)
        self._all.add(copy)
        shadow.counters.in_flight.enter()
        asyncio.get_running_loop().call_soon(copy.begin)

    def remove(self, copy: "_Copy") -> None:
        variant = copy.admitted.variant
        copies = self._by_shadow[variant.slot_queue]
        copies.remove(copy)
        if not copies.copies:
            del self._by_shadow[variant.slot_queue]
        self._all.remove(copy)
        variant.counters.in_flight.leave()

    def expire(self) -> None:
        """Call several times a second."""
        now = self.monotonic()
        for copy in [copy for copy in self._all.copies if copy.deadline <= now]:
            copy.expire()

    def _can_add(self, copies: _Copies, size: int) -> bool:
        return self._all.can_add(size, self._max_copies, self._max_bytes) and copies.can_add(
            size, self._max_copies_per_shadow, self._max_bytes * MAX_SHARE_PER_SHADOW
        )


class _Copy(Phased):
    """Waits for a slot and a connection like a request, and discards the answer."""

    _moves = COPY_MOVES
    _upstream: Upstream
    """set when SENT"""
    _status = 0
    _not_started = False
    _was_sent = False

    def __init__(
        self,
        shadows: Shadows,
        admitted: Admitted,
        parts: tuple[bytes, ...],
        size: int,
        streamed: bool,
    ) -> None:
        self.phase = PLACING
        self.admitted = admitted
        self.size = size
        self._shadows = shadows
        self._parts = parts
        self._streamed = streamed
        self._metrics = RequestMetrics(shadows.monotonic, None)
        self._metrics.received_at = now = shadows.monotonic()
        self._placement = Placement(admitted, self, shadows.models, shadows.random, now)
        self.deadline = now + shadows.timeout_seconds

    # Called by Shadows

    def begin(self) -> None:
        if self.phase is PLACING:
            self._placement.find()

    def expire(self) -> None:
        self._fail()

    # Called by the placement

    def placed(self, instance: RoutedInstance) -> None:
        upstream = instance.upstreams.take(self)
        if upstream is None:
            self._move(CONNECTING)
        else:
            self.connected(upstream)

    def no_instance_left(self) -> None:
        self._fail()

    def instance_started(self) -> None: ...  # copies do not wait for that

    # Called by the connection pool

    def connected(self, upstream: Upstream) -> None:
        if not self._was_sent:
            self._was_sent = True
            self._metrics.admit(self.admitted)
        self._metrics.send(self._placement.instance.instance_id)
        self._move(SENT)
        self._upstream = upstream
        upstream.send(self, INVOCATIONS, self.admitted.header_lines, list(self._parts), self.size)

    def refused(self) -> None:
        self._move(PLACING)
        self._placement.find_another()

    # Called by the container's connection

    def answer_interim(self, status: int, headers: Headers) -> None: ...

    def answer_begins(self, status: int, headers: Headers, length: int | None) -> None:
        self._status = status
        self._not_started = is_not_started(status, headers)

    def answer_continues(self, data: bytes) -> None:
        if self._streamed and 200 <= self._status < 300:
            self._streamed = False
            self.deadline = self._shadows.monotonic() + self._shadows.stream_timeout_seconds

    def answer_ends(self) -> None:
        self._move(ANSWERED)
        if self._not_started:
            self.refused()
            return
        self._metrics.answer()
        if 200 <= self._status < 300:
            self._metrics.succeed()
        else:
            self._metrics.fail(self._status)
        self._release()

    def answer_breaks(self) -> None:
        self._move(ANSWERED)
        if self._upstream.not_begun:
            self.refused()
        else:
            self._fail()

    def upstream_full(self) -> None: ...  # the body is complete

    def upstream_drained(self) -> None: ...

    # The end

    def _fail(self) -> None:
        """Counts as the shadow's error if sent, else as dropped."""
        if self._was_sent:
            self._metrics.fail(500)
        else:
            self.admitted.variant.counters.shadow_copies_dropped += 1
        self._release()

    def _release(self) -> None:
        phase = self.phase
        self._move(DONE)
        if phase is SENT:
            self._upstream.abandon()
        elif phase is CONNECTING:
            self._placement.instance.upstreams.forget(self)
        self._placement.release()
        self._shadows.remove(self)
