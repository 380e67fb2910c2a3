"""The requests of one connection, answered in order; a part of ServerConnection."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Protocol

from sagehen.http1.exchange import Exchange, Handler
from sagehen.http1.limits import ConnectionLimit, ConnectionLimits

__all__ = ["FOR_QUEUE", "FOR_WRITING", "ConnectionHost", "RequestQueue", "drop"]

log = logging.getLogger(__name__)

# Reasons for pausing reading; several may hold.
FOR_HANDLER = 1
FOR_QUEUE = 2
FOR_WRITING = 4


class ConnectionHost(Protocol):
    """The server, as a connection uses it; it knows connections of its own class."""

    limits: ConnectionLimits
    now: float
    """monotonic seconds, as of the last sweep"""
    draining: bool
    date_line: bytes

    def went_idle(self, connection: Any) -> None:
        """Between requests, or lingering."""

    def went_busy(self, connection: Any) -> None: ...

    def lost(self, connection: Any) -> None: ...

    def limit_hit(self, limit: ConnectionLimit) -> None: ...


class RequestQueue(ABC):
    """Begins requests, writes their answers in order, and paces reading."""

    __slots__ = (
        "_active",
        "_blocked_since",
        "_discarding",
        "_host",
        "_lingering_since",
        "_paused_for",
        "_receiving",
        "_running",
        "_transport",
        "_unanswered",
    )

    begun_at_once = 1
    """Unanswered requests at which reading is paused. With 1, a request begins when the earlier
    ones are answered; otherwise at once."""

    _transport: asyncio.Transport

    def __init__(self, host: ConnectionHost) -> None:
        self._host = host
        self._unanswered: deque[Exchange] = deque()
        """unanswered requests; the first is being answered"""
        self._receiving: Exchange | None = None
        self._running = False
        self._paused_for = 0
        self._discarding = False
        """input is no longer parsed: the connection is ending"""
        self._active = host.now
        self._blocked_since: float | None = None
        self._lingering_since: float | None = None

    # For the server's own connection class

    @abstractmethod
    def make_exchange(self) -> Exchange:
        """Called at the head of each request."""

    @abstractmethod
    def handler_of(self, exchange: Any) -> Handler:
        """Called with an own exchange when it begins; one with a `fault` must be refused."""

    def turn_of(self, exchange: Any) -> None:  # noqa: B027
        """Called when all requests before one that had begun at once are answered."""

    # Called by exchanges

    @property
    def date_line(self) -> bytes:
        return self._host.date_line

    @property
    def draining(self) -> bool:
        return self._host.draining and (
            len(self._unanswered) < 2 or self._unanswered[1].handler is None
        )

    @property
    def is_blocked(self) -> bool:
        return self._blocked_since is not None

    def is_current(self, exchange: Exchange) -> bool:
        unanswered = self._unanswered
        return (
            len(unanswered) > 0 and unanswered[0] is exchange and not self._transport.is_closing()
        )

    def write(self, data: bytes) -> None:
        self._active = self._host.now
        self._transport.write(data)

    def write_all(self, parts: list[bytes]) -> None:
        self._active = self._host.now
        self._transport.writelines(parts)

    def finished(self, exchange: Exchange) -> None:
        exchange.done = True
        # Breaks the reference cycle, so that both are freed at once.
        exchange.handler = None
        unanswered = self._unanswered
        if self._running:
            return  # a loop further down the stack continues; avoids recursion
        if len(unanswered) == 1 and not exchange.closes:
            unanswered.clear()
            self._note_progress()
        elif len(unanswered) > 1 and self.begun_at_once == 1:
            # The next one begins in the loop's next turn: the caller has not yet released what
            # this request held.
            asyncio.get_running_loop().call_soon(self._go_on)
        else:
            self._run_queue()

    def abort(self) -> None:
        self._discarding = True
        self._transport.abort()

    def break_off(self) -> None:
        self._discarding = True
        self._transport.close()

    def hold(self) -> None:
        self._pause(FOR_HANDLER)

    def release(self) -> None:
        self._unpause(FOR_HANDLER)

    # The queue of requests

    def _append(self, exchange: Exchange) -> None:
        self._unanswered.append(exchange)
        if self.begun_at_once > 1:
            self._begin(exchange)
        else:
            self._run_queue()

    def _run_queue(self) -> None:
        if self._running:
            return  # a loop further down the stack continues; avoids recursion
        self._running = True
        try:
            self._answer_in_order()
        finally:
            self._running = False
        self._note_progress()

    def _note_progress(self) -> None:
        if not self._unanswered and self._receiving is None and not self._discarding:
            self._host.went_idle(self)
        if self._paused_for and len(self._unanswered) <= self.begun_at_once:
            self._unpause(FOR_QUEUE)

    def _go_on(self) -> None:
        """Runs in the event loop, which would not cut off the client on an exception."""
        try:
            self._run_queue()
        except Exception:
            self._cut_off_unhandled()

    def _answer_in_order(self) -> None:
        unanswered = self._unanswered
        while unanswered:
            exchange = unanswered[0]
            if exchange.done:
                unanswered.popleft()
                if exchange.closes:
                    self._hang_up(exchange)
                    break
                if unanswered and unanswered[0].handler is not None:
                    self.turn_of(unanswered[0])
            elif exchange.handler is None and self._blocked_since is None:
                self._begin(exchange)
            else:
                break

    def _begin(self, exchange: Exchange) -> None:
        handler = exchange.handler = self.handler_of(exchange)
        handler.begin()
        if exchange.early is not None:
            early, exchange.early = exchange.early, None
            for part in early:
                if not exchange.done:
                    handler.body(part)
        if exchange.is_whole and not exchange.done:
            handler.whole()

    def _cut_off_unhandled(self) -> None:
        """Must be called while an exception is handled."""
        log.exception("A request could not be handled and its client is cut off.")
        self.abort()

    def _hang_up(self, exchange: Exchange) -> None:
        self._discarding = True
        self._drop_unanswered()
        if exchange.is_whole or self._transport.is_closing():
            self._transport.close()
            return
        # The client still sends: closing now would reset the connection and lose the answer. Shut
        # down our side, and discard input for a while.
        self._lingering_since = self._host.now
        self._host.went_idle(self)
        self._paused_for = 0
        self._transport.write_eof()
        self._transport.resume_reading()

    def _drop_unanswered(self) -> None:
        unanswered, self._unanswered = self._unanswered, deque()
        for exchange in unanswered:
            if not exchange.done:
                drop(exchange)

    def _pause(self, reason: int) -> None:
        if not self._paused_for and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused_for |= reason

    def _unpause(self, reason: int) -> None:
        if not self._paused_for:
            return
        self._paused_for &= ~reason
        if not self._paused_for and not self._transport.is_closing():
            self._active = self._host.now
            self._transport.resume_reading()


def drop(exchange: Exchange) -> None:
    exchange.done = True
    handler, exchange.handler = exchange.handler, None
    if handler is not None:
        handler.client_gone()
