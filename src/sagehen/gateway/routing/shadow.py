"""Copies of requests, sent to shadow variants beside the requests themselves.

A copy shares with its request nothing but the bytes of the body. Nobody waits for it, its answer is
thrown away, and its bounds are its own: a shadow that is slow, full or broken takes nothing from
production. Each copy counts once: as an invocation of the shadow, or as dropped if never sent.
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
"""Of the bytes for all of them: one shadow that hangs leaves room for the copies of the others."""


@dataclass(slots=True)
class _Held:
    """The copies for one shadow, or for all."""

    copies: set["_Copy"] = field(default_factory=set)
    size: int = 0
    """Of their bodies."""

    def add(self, copy: "_Copy") -> None:
        self.copies.add(copy)
        self.size += copy.size

    def remove(self, copy: "_Copy") -> None:
        self.copies.remove(copy)
        self.size -= copy.size

    def has_room(self, size: int, max_copies: int, max_bytes: float) -> bool:
        return len(self.copies) < max_copies and self.size + size <= max_bytes


class Shadows:
    """All copies of this process, and their bounds.

    Args:
        random: gives numbers in [0, 1).
    """

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
        """Of the shadows that have any; by their line, which is the same in all tables."""

    def __len__(self) -> int:
        """How many copies are under way."""
        return len(self._all.copies)

    def copy(self, admitted: Admitted, parts: Sequence[bytes], streamed: bool) -> None:
        """Send the endpoint's shadow a copy of a request, if it falls into the share.

        Only decided here. The work is done in the next turn of the event loop: by then the request
        itself is on its way.

        Args:
            parts: of the body.
            streamed: the answer may go on for the time of a stream, once it has begun.
        """
        endpoint = admitted.endpoint
        shadow = endpoint.shadow
        # What belongs to a session is known to one instance of production and nobody else.
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
        """It is done with."""
        variant = copy.admitted.variant
        held = self._by_shadow[variant.line]
        held.remove(copy)
        if not held.copies:
            del self._by_shadow[variant.line]
        self._all.remove(copy)
        variant.counters.in_flight.leave()

    def expire(self) -> None:
        """End the copies whose time is over. To be called several times a second."""
        now = self.monotonic()
        for copy in [one for one in self._all.copies if one.deadline <= now]:
            copy.expire()

    def _has_room(self, held: _Held, size: int) -> bool:
        return self._all.has_room(size, self._max_copies, self._max_bytes) and held.has_room(
            size, self._max_copies_of_one_shadow, self._max_bytes * SHARE_OF_ONE_SHADOW
        )


class _Copy:
    """One copy: waits for a slot and a connection as a request does, and reads past the answer."""

    _upstream: Upstream | None = None
    """Where it was sent, until all of the answer is here."""
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

    # What its keeper calls

    def begin(self) -> None:
        self._placement.find()

    def expire(self) -> None:
        """Whatever it waits for has taken too long."""
        self._fail()

    # What its placement calls

    def placed(self, instance: RoutedInstance) -> None:
        upstream = instance.pool.take(self)
        if upstream is not None:
            self.connected(upstream)

    def nowhere(self) -> None:
        self._fail()

    # What the pool of connections calls

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

    # What the container's connection calls

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

    def upstream_full(self) -> None: ...  # The body is all here: there is nobody to pause.

    def upstream_drained(self) -> None: ...

    # The end

    def _fail(self) -> None:
        """It has come to nothing: by the shadow's fault, if it was sent."""
        if self._account.sent_at is None:
            self.admitted.variant.counters.shadow_copies_dropped += 1
        else:
            self._account.fail(500)
        self._let_go()

    def _let_go(self) -> None:
        """Hold nothing any more, whatever was under way."""
        if self._upstream is not None:
            self._upstream.abandon()
            self._upstream = None
        elif self._placement.instance is not None:
            self._placement.instance.pool.forget(self)
        self._placement.let_go()
        self._shadows.leave(self)
