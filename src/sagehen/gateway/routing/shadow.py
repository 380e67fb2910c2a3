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
from sagehen.gateway.admission.params import container_head
from sagehen.gateway.client.limits import ClientLimits, Limit, LimitHits
from sagehen.gateway.container.answer import is_not_started
from sagehen.gateway.container.connection import Headers, Upstream
from sagehen.gateway.metrics.request_metrics import Account
from sagehen.gateway.multimodel.models import LoadedModels
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.gateway.routing.placement import Placement
from sagehen.gateway.routing.slot_queue import SlotQueue

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["Shadows"]

SHARE_OF_ONE_SHADOW = 0.25
"""of the bytes: a hanging shadow leaves room for the others"""


@dataclass(slots=True)
class _Held:
    """Copies for one shadow, or all."""

    copies: set["_Copy"] = field(default_factory=set)
    size: int = 0
    """of bodies"""

    def add(self, copy: "_Copy") -> None:
        self.copies.add(copy)
        self.size += copy.size

    def remove(self, copy: "_Copy") -> None:
        self.copies.remove(copy)
        self.size -= copy.size

    def has_room(self, size: int, max_copies: int, max_bytes: float) -> bool:
        return len(self.copies) < max_copies and self.size + size <= max_bytes


class Shadows:
    """All copies, within limits. `random` returns numbers in [0, 1)."""

    def __init__(
        self,
        settings: "Settings",
        clock: Clock,
        random: Random,
        models: LoadedModels,
        limit_hits: LimitHits,
    ) -> None:
        self.random = random
        self.models = models
        self.monotonic = clock.monotonic
        self.patience_seconds = settings.invocation_timeout_seconds
        self.stream_patience_seconds = settings.response_stream_timeout_seconds
        self._limit_hits = limit_hits
        # Each may have a connection, as a client may.
        self._max_copies = ClientLimits.of(settings).connections
        self._max_copies_of_one_shadow = settings.max_shadow_copies
        self._max_bytes = settings.max_shadow_body_bytes
        self._all = _Held()
        self._by_shadow: dict[SlotQueue, _Held] = {}
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
        held = self._by_shadow.get(shadow.line) or _Held()
        if not self._has_room(held, size):
            self._limit_hits[Limit.SHADOW_COPIES] += 1
            shadow.counters.shadow_copies_dropped += 1
            return
        copied = Admitted(endpoint, shadow, admitted.lines, None)
        copy = _Copy(self, copied, tuple(parts), size, streamed)
        self._by_shadow[shadow.line] = held
        held.add(copy)
        self._all.add(copy)
        shadow.counters.in_flight.enter()
        asyncio.get_running_loop().call_soon(copy.begin)

    def leave(self, copy: "_Copy") -> None:
        variant = copy.admitted.variant
        held = self._by_shadow[variant.line]
        held.remove(copy)
        if not held.copies:
            del self._by_shadow[variant.line]
        self._all.remove(copy)
        variant.counters.in_flight.leave()

    def expire(self) -> None:
        """Call several times a second."""
        now = self.monotonic()
        for copy in [one for one in self._all.copies if one.deadline <= now]:
            copy.expire()

    def _has_room(self, held: _Held, size: int) -> bool:
        return self._all.has_room(size, self._max_copies, self._max_bytes) and held.has_room(
            size, self._max_copies_of_one_shadow, self._max_bytes * SHARE_OF_ONE_SHADOW
        )


class _Copy:
    """Waits for a slot and a connection like a request, and discards the answer."""

    _upstream: Upstream | None = None
    """set until the answer is complete"""
    _status = 0
    _not_started = False

    def __init__(
        self,
        shadows: Shadows,
        admitted: Admitted,
        parts: tuple[bytes, ...],
        size: int,
        streamed: bool,
    ) -> None:
        self.admitted = admitted
        self.size = size
        self._shadows = shadows
        self._parts = parts
        self._streamed = streamed
        self._account = Account(shadows.monotonic, None)
        self._account.received_at = now = shadows.monotonic()
        self._placement = Placement(admitted, self, shadows.models, shadows.random, now)
        self.deadline = now + shadows.patience_seconds

    # Called by Shadows

    def begin(self) -> None:
        self._placement.find()

    def expire(self) -> None:
        self._fail()

    # Called by the placement

    def placed(self, instance: RoutedInstance) -> None:
        upstream = instance.pool.take(self)
        if upstream is not None:
            self.connected(upstream)

    def nowhere(self) -> None:
        self._fail()

    # Called by the connection pool

    def connected(self, upstream: Upstream) -> None:
        assert self._placement.instance is not None
        if self._account.sent_at is None:
            self._account.admit(self.admitted)
        self._account.send(self._placement.instance.instance_id)
        self._upstream = upstream
        upstream.begin(self)
        head = container_head(self.admitted.lines, None, self.size)
        upstream.write_all([head, *self._parts])

    def refused(self) -> None:
        self._placement.elsewhere()

    # Called by the container's connection

    def answer_interim(self, status: int, headers: Headers) -> None: ...

    def answer_begins(self, status: int, headers: Headers, length: int | None) -> None:
        self._status = status
        self._not_started = is_not_started(status, headers)

    def answer_continues(self, data: bytes) -> None:
        if self._streamed and 200 <= self._status < 300:
            self._streamed = False
            self.deadline = self._shadows.monotonic() + self._shadows.stream_patience_seconds

    def answer_ends(self) -> None:
        self._upstream = None
        if self._not_started:
            self.refused()
            return
        self._account.answer()
        if 200 <= self._status < 300:
            self._account.end()
        else:
            self._account.fail(self._status)
        self._let_go()

    def answer_breaks(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None and upstream.unread:
            self.refused()
        else:
            self._fail()

    def upstream_full(self) -> None: ...  # the body is complete

    def upstream_drained(self) -> None: ...

    # The end

    def _fail(self) -> None:
        """Counts as the shadow's error if sent, else as dropped."""
        if self._account.sent_at is None:
            self.admitted.variant.counters.shadow_copies_dropped += 1
        else:
            self._account.fail(500)
        self._let_go()

    def _let_go(self) -> None:
        if self._upstream is not None:
            self._upstream.abandon()
            self._upstream = None
        elif self._placement.instance is not None:
            self._placement.instance.pool.forget(self)
        self._placement.let_go()
        self._shadows.leave(self)
