"""State shared by client connections, with limits on requests."""

import asyncio
import math
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from sagehen.base.clock import SYSTEM, Clock
from sagehen.base.python310 import timeout
from sagehen.containers.modelserver.contract import ModelRequest
from sagehen.containers.modelserver.serving.body_budget import ServingBodyBudget
from sagehen.containers.modelserver.serving.responses import (
    failure,
    not_started,
    too_much_held,
)
from sagehen.http1.fields import date_line
from sagehen.http1.limits import ConnectionLimit, ConnectionLimits
from sagehen.http1.request_head import KnownHeads

__all__ = ["ModelServer"]

MAX_HELD_BYTES = 512 * 1024 * 1024
"""Limit for bodies of unanswered requests, except large ones; one of the maximum size is always
accepted.
"""

LARGE_BYTES = 8 * 1024 * 1024
"""A larger body of known length waits, unread, for memory. It is not rejected: its client can wait,
but not send it twice.
"""

RECEIVE_SECONDS = 60.0
"""Limit for receiving a head, and each PIECE_BYTES of a body."""
PIECE_BYTES = 8 * 1024 * 1024

LIMITS = ConnectionLimits(
    head_bytes=64 * 1024,
    head_seconds=RECEIVE_SECONDS,
    # The client is a gateway, which has these limits for callers of its own.
    stall_seconds=math.inf,
    answer_seconds=math.inf,
    idle_seconds=math.inf,
)

_SWEEP_SECONDS = 5.0
_LINGER_SECONDS = 2.0


class Connected(Protocol):
    """A client connection, for the server."""

    def cut_off_if_overdue(self, now: float) -> None: ...

    def turn_away(self) -> None:
        """Refuses a body that waits for memory."""

    def close(self) -> None:
        """Closes after sending pending output."""

    def abort(self) -> None: ...


class ModelServer:
    """Tracks and limits the requests of all connections."""

    def __init__(
        self,
        handle: Callable[[ModelRequest], None],
        max_body_bytes: int,
        clock: Clock = SYSTEM,
        max_answer_bytes: int | None = None,
    ) -> None:
        self.handle = handle
        self.max_body_bytes = max_body_bytes
        self.max_answer_bytes = sys.maxsize if max_answer_bytes is None else max_answer_bytes
        self.clock = clock
        self.limits = LIMITS
        self.known_heads = KnownHeads()
        self.draining = False
        self.connections: set[Connected] = set()
        self._awaited = 0  # unanswered requests with waiting clients
        self._held_bytes = 0
        self.body_budget = ServingBodyBudget(MAX_HELD_BYTES)
        self._settled = asyncio.Event()
        self._sweeper: asyncio.TimerHandle | None = None
        self._look_at_clock()

    def _look_at_clock(self) -> None:
        self.now = self.clock.monotonic()
        """as of the last sweep"""
        self.date_line = date_line(self.clock.now())

    def begin(self, request: ModelRequest) -> None:
        self._awaited += 1
        if request.reservation is None:
            self._held_bytes += len(request.body)
        if self.draining:
            request.respond(not_started())
            return
        held = 0 if request.reservation is not None else self._held_bytes
        if held > MAX_HELD_BYTES and held > self.max_body_bytes:
            request.respond(too_much_held(max(MAX_HELD_BYTES, self.max_body_bytes)))
            return
        try:
            self.handle(request)
        except Exception as problem:
            request.respond(failure(problem))

    def end(self, request: ModelRequest) -> None:
        if request.reservation is None:
            self._held_bytes -= len(request.body)
        else:
            request.reservation.release()
        if not request.abandoned:
            self._awaited -= 1
            if self.draining:
                self._settled.set()

    def abandon(self, request: ModelRequest) -> None:
        """Marks the request: its client has disconnected."""
        request.abandoned = True
        self._awaited -= 1
        self._settled.set()

    def went_idle(self, connection: Connected) -> None: ...

    def went_busy(self, connection: Connected) -> None: ...

    def limit_hit(self, limit: ConnectionLimit) -> None: ...

    def lost(self, connection: Connected) -> None:
        self.connections.discard(connection)
        self._settled.set()

    async def drain(self) -> None:
        """Accepts no more requests; returns when all answers are sent.

        Does not wait for abandoned requests: user code may never return.
        """
        self.draining = True
        for connection in tuple(self.connections):
            connection.turn_away()
        while self._awaited:
            await self._change()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in tuple(self.connections):
            connection.close()
        with suppress(TimeoutError):  # clients may never read
            async with timeout(_LINGER_SECONDS):
                while self.connections:
                    await self._change()

    def abort(self) -> None:
        for connection in tuple(self.connections):
            connection.abort()

    async def _change(self) -> None:
        self._settled.clear()
        await self._settled.wait()

    def sweep(self) -> None:
        """Periodically cuts off slow senders."""
        self._look_at_clock()
        for connection in tuple(self.connections):
            connection.cut_off_if_overdue(self.now)
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self.sweep)
