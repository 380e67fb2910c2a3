"""What the connections of the model server share: who works on requests, and how much of them."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from sagehen.base.clock import SYSTEM, Clock
from sagehen.containers.modelserver.contract import ModelRequest
from sagehen.containers.modelserver.serving.body_budget import ServingBodyBudget
from sagehen.containers.modelserver.serving.responses import (
    failure,
    not_started,
    too_much_held,
)

__all__ = ["ModelServer"]

MAX_HELD_BYTES = 512 * 1024 * 1024
"""Bodies of all requests that wait or are worked on, large ones counted apart; one of the largest
size is always taken."""

LARGE_BYTES = 8 * 1024 * 1024
"""A body of more, whose length is told first, is not read before there is room for it. It waits
where others are refused, for who sends such bodies has time, and none to send them twice."""

RECEIVE_SECONDS = 60.0
"""How long a request may take to arrive once its first byte has, and for each of the pieces that a
large one comes in."""
PIECE_BYTES = 8 * 1024 * 1024

_SWEEP_SECONDS = 5.0
_LINGER_SECONDS = 2.0


class Connected(Protocol):
    """A client's connection."""

    receiving_since: float
    """When the request that comes now began to, by the server's clock; 0 between requests."""

    def turn_away(self) -> None:
        """Begin nothing of a body that waits for room."""

    def close(self) -> None:
        """Close once what was written has been sent."""

    def abort(self) -> None: ...


class ModelServer:
    """What the connections of one listener share."""

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
        self.draining = False
        self.connections: set[Connected] = set()
        self._awaited = 0  # requests that have no answer yet, and somebody who waits for it
        self._held_bytes = 0
        self.room = ServingBodyBudget(MAX_HELD_BYTES)
        self._settled = asyncio.Event()
        self._sweeper: asyncio.TimerHandle | None = None

    def begin(self, request: ModelRequest) -> None:
        """A whole request is here: hand it on, or turn it away if the server is ending."""
        self._awaited += 1
        if request.stay is None:
            self._held_bytes += len(request.body)
        if self.draining:
            request.respond(not_started())
            return
        most_held = max(MAX_HELD_BYTES, self.max_body_bytes)
        if request.stay is None and self._held_bytes > most_held:
            request.respond(too_much_held(most_held))
            return
        try:
            self.handle(request)
        except Exception as problem:
            request.respond(failure(problem))

    def end(self, request: ModelRequest) -> None:
        """A request that was begun has its answer."""
        if request.stay is None:
            self._held_bytes -= len(request.body)
        else:
            request.stay.leave()
        if not request.abandoned:
            self._awaited -= 1
            self._settled.set()

    def abandon(self, request: ModelRequest) -> None:
        """Nobody waits any more for a request that was begun."""
        request.abandoned = True
        self._awaited -= 1
        self._settled.set()

    def lost(self, connection: Connected) -> None:
        self.connections.discard(connection)
        self._settled.set()

    async def drain(self) -> None:
        """Begin nothing more; return when all that somebody waits for has been answered and sent.

        The user's code may never come back to answer what its caller has given up.
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
        with suppress(TimeoutError):  # a client may never read what it is sent
            async with asyncio.timeout(_LINGER_SECONDS):
                while self.connections:
                    await self._change()

    def abort(self) -> None:
        """Drop whatever is not answered yet."""
        for connection in tuple(self.connections):
            connection.abort()

    async def _change(self) -> None:
        self._settled.clear()
        await self._settled.wait()

    def sweep(self) -> None:
        """Now and then, drop connections whose request does not get on."""
        deadline = self.clock.monotonic() - RECEIVE_SECONDS
        for connection in tuple(self.connections):
            if 0 < connection.receiving_since < deadline:
                connection.abort()
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self.sweep)
