"""Copies of requests, sent to shadow variants beside the requests themselves.

A copy shares with its request nothing but the bytes of the body. Nobody waits for it, its answer is
thrown away, and its bounds are its own: a shadow that is slow, full or broken takes nothing from
production. Each copy counts once: as an invocation of the shadow, or as dropped if never sent.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from sagehen.clock import Clock
from sagehen.config import Settings
from sagehen.gateway.admission import Admitted
from sagehen.gateway.choose import Random, choose_free
from sagehen.gateway.container_answer import is_not_started
from sagehen.gateway.container_request import container_head
from sagehen.gateway.line import Line
from sagehen.gateway.routes import Instance, Variant
from sagehen.gateway.upstream import Headers, Upstream

__all__ = ["Shadows"]

MAX_BYTES_HELD = 2**28
"""Of the bodies of all copies together; those of the requests are held beside them."""
MAX_BYTES_OF_ONE_SHADOW = 2**26
"""So that one shadow that hangs leaves room for the copies of the others."""


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

    def has_room(self, size: int, max_copies: int, max_bytes: int) -> bool:
        return len(self.copies) < max_copies and self.size + size <= max_bytes


class Shadows:
    """All copies of this process, and their bounds.

    Args:
        random: gives numbers in [0, 1).
        max_copies: of all shadows together; each may have a connection.
    """

    def __init__(self, settings: Settings, clock: Clock, random: Random, max_copies: int) -> None:
        self.random = random
        self.monotonic = clock.monotonic
        self.patience_seconds = settings.invocation_timeout_seconds
        self.stream_patience_seconds = settings.response_stream_timeout_seconds
        self._max_copies = max_copies
        self._max_copies_of_one_shadow = settings.max_shadow_copies
        self._all = _Held()
        self._by_shadow: dict[Line, _Held] = {}
        """Of the shadows that have any; by their line, which is the same in all tables."""

    def copy(
        self, admitted: Admitted, headers: Headers, parts: Sequence[bytes], streamed: bool
    ) -> None:
        """Send the endpoint's shadow a copy of a request, if it falls into the share.

        Only decided here. The work is done in the next turn of the event loop: by then the request
        itself is on its way.

        Args:
            headers: as a container is to get them.
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
            shadow.counters.shadow_copies_dropped += 1
            return
        copy = _Copy(self, shadow, headers, tuple(parts), size, streamed)
        self._by_shadow[shadow.line] = held
        held.add(copy)
        self._all.add(copy)
        shadow.counters.in_flight.enter()
        asyncio.get_running_loop().call_soon(copy.dispatch)

    def leave(self, copy: "_Copy") -> None:
        """It is done with."""
        held = self._by_shadow[copy.variant.line]
        held.remove(copy)
        if not held.copies:
            del self._by_shadow[copy.variant.line]
        self._all.remove(copy)
        copy.variant.counters.in_flight.leave()

    def expire(self) -> None:
        """End the copies whose time is over. To be called several times a second."""
        now = self.monotonic()
        for copy in [one for one in self._all.copies if one.deadline <= now]:
            copy.expire()

    def _has_room(self, held: _Held, size: int) -> bool:
        return self._all.has_room(size, self._max_copies, MAX_BYTES_HELD) and held.has_room(
            size, self._max_copies_of_one_shadow, MAX_BYTES_OF_ONE_SHADOW
        )


class _Copy:
    """One copy: waits for a slot and a connection as a request does, and reads past the answer."""

    __slots__ = (
        "_begun_at",
        "_headers",
        "_in_line",
        "_instance",
        "_not_started",
        "_parts",
        "_sent_at",
        "_shadows",
        "_status",
        "_streamed",
        "_tried",
        "_upstream",
        "deadline",
        "size",
        "variant",
        "waiting_since",
    )

    def __init__(
        self,
        shadows: Shadows,
        variant: Variant,
        headers: Headers,
        parts: tuple[bytes, ...],
        size: int,
        streamed: bool,
    ) -> None:
        self.variant = variant
        self.size = size
        self._shadows = shadows
        self._headers = headers
        self._parts = parts
        self._streamed = streamed
        self._instance: Instance | None = None
        """Where it is counted as outstanding."""
        self._in_line = False
        self._upstream: Upstream | None = None
        """Where it was sent, until all of the answer is here."""
        self._tried: list[Instance] = []
        self._status = 0
        self._not_started = False
        self._sent_at: float | None = None
        self._begun_at = self.waiting_since = shadows.monotonic()
        self.deadline = self._begun_at + shadows.patience_seconds

    # What its keeper calls

    def dispatch(self) -> None:
        """Go to an instance that was not tried yet, or wait until one of them is free."""
        instances = self._untried()
        if not instances:
            self._fail()
            return
        instance = None if self.variant.line.taken else self._choose(instances)
        if instance is None:
            self._wait()
        else:
            self._go_to(instance)

    def expire(self) -> None:
        """Whatever it waits for has taken too long."""
        self._fail()

    # Where it goes

    def _untried(self) -> list[Instance]:
        return [one for one in self.variant.line.variant.instances if one not in self._tried]

    def _choose(self, instances: Sequence[Instance]) -> Instance | None:
        return choose_free(instances, self.variant.route.strategy, self._shadows.random)

    def _wait(self, again: bool = False) -> None:
        self._in_line = True
        self.variant.line.join(self, again)

    def _go_to(self, instance: Instance) -> None:
        self._instance = instance
        instance.take()
        upstream = instance.pool.take(self)
        if upstream is not None:
            self.connected(upstream)

    def _elsewhere(self) -> None:
        """What was chosen provably did not begin: another may."""
        self._tried.append(self._leave_instance())
        self.dispatch()

    def _leave_instance(self) -> Instance:
        instance, self._instance = self._instance, None
        assert instance is not None
        instance.give()
        self.variant.line.wake()
        return instance

    # What the line calls

    def may_go_to(self, instance: Instance) -> bool:
        return instance not in self._tried

    def prefers(self, instance: Instance) -> bool:
        return True

    def slot_free(self) -> None:
        self._in_line = False
        instance = self._choose(self._untried())
        if instance is None:
            # Another gateway has taken it in this very moment.
            self._wait(again=True)
        else:
            self._go_to(instance)

    # What the pool of connections calls

    def connected(self, upstream: Upstream) -> None:
        if self._sent_at is None:
            self.variant.counters.invocations += 1
            self.variant.counters.invocations_per_instance += self.variant.instance_share
        self._upstream = upstream
        self._sent_at = self._shadows.monotonic()
        upstream.begin(self)
        upstream.write_all([container_head(self._headers, None, self.size), *self._parts])

    def refused(self) -> None:
        self._elsewhere()

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
            self._elsewhere()
        else:
            self._count(self._status)
            self._let_go()

    def answer_breaks(self) -> None:
        self._upstream = None
        self._fail()

    def upstream_full(self) -> None: ...  # The body is all here: there is nobody to pause.

    def upstream_drained(self) -> None: ...

    # The end

    def _fail(self) -> None:
        """It has come to nothing: by the shadow's fault, if it was sent."""
        if self._sent_at is None:
            self.variant.counters.shadow_copies_dropped += 1
        else:
            self._count(500)
        self._let_go()

    def _let_go(self) -> None:
        """Hold nothing any more, whatever was under way."""
        if self._upstream is not None:
            self._upstream.abandon()
            self._upstream = None
        elif self._in_line:
            self._in_line = False
            self.variant.line.leave(self)
        elif self._instance is not None:
            self._instance.pool.forget(self)
        if self._instance is not None:
            self._leave_instance()
        self._shadows.leave(self)

    def _count(self, status: int) -> None:
        counters = self.variant.counters
        if not 200 <= status < 300:
            counters.model_errors += 1
            if 400 <= status < 500:
                counters.errors_4xx += 1
            else:
                counters.errors_5xx += 1
        assert self._sent_at is not None
        now = self._shadows.monotonic()
        counters.model_latency.seen.append(int((now - self._sent_at) * 1e6))
        counters.overhead_latency.seen.append(int((self._sent_at - self._begun_at) * 1e6))
