"""A client's HTTP/1.1 connection: parses pipelined requests and answers them in order."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

import httptools

from sagehen.gateway.admission.errors import RuntimeRefusal, bad_http
from sagehen.gateway.admission.params import joined_fields
from sagehen.gateway.client.exchange import CONTINUE, Exchange, Handler
from sagehen.gateway.client.limits import ClientLimits, Limit, LimitHits
from sagehen.gateway.client.request_head import endless, fault_in, passed_bound
from sagehen.gateway.control_unavailable import ControlUnavailable
from sagehen.wire.errors import AwsError

__all__ = ["Connection", "ConnectionHost"]

log = logging.getLogger(__name__)

MAX_PIECE_BYTES = 256 * 1024
"""received at once: that much may precede a head in its first piece"""
# Fixed; limits that depend on clients and networks are settings (ClientLimits).
ANSWER_STALL_SECONDS = 900.0
"""for the next piece of an answer: S3 may copy gigabytes in silence"""
LINGER_IDLE_SECONDS = 10.0
"""for the next piece from a client that still sends after its answer"""
LINGER_SECONDS = 120.0
"""for all that such a client sends: most libraries read the answer only afterwards"""
DRAIN_IDLE_SECONDS = 1.0
"""for idle connections of a draining server: a request may be on its way"""

WRITE_BUFFER_BYTES = 256 * 1024
"""may wait for a slow client before the handler is paused"""

HEALTH = b"/_sagehen/health"

# Reasons for pausing reading; both may hold.
_FOR_HANDLER = 1
_FOR_LINE = 2


class ConnectionHost(Protocol):
    """The server, as a connection uses it."""

    limits: ClientLimits
    limit_hits: LimitHits
    now: float
    draining: bool
    date_line: bytes

    def admit(self, connection: "Connection") -> bool: ...

    def went_idle(self, connection: "Connection") -> None: ...

    def went_busy(self, connection: "Connection") -> None: ...

    def lost(self, connection: "Connection") -> None: ...

    @property
    def dispatch(self) -> Callable[[Exchange], Handler]: ...

    def next_request_id(self) -> bytes: ...


class Connection(asyncio.Protocol):
    """Parses requests as they arrive; each starts when the earlier ones are answered."""

    __slots__ = (
        "_active",
        "_blocked_since",
        "_deaf",
        "_half_closed",
        "_head_bytes",
        "_head_since",
        "_held",
        "_line",
        "_lingering_since",
        "_parser",
        "_piece_bytes",
        "_receiving",
        "_running",
        "_server",
        "_transport",
        "health_only",
    )

    _transport: asyncio.Transport
    _parser: httptools.HttpRequestParser
    """deleted when the connection ends, to break the reference cycle"""

    def __init__(self, server: ConnectionHost) -> None:
        self._server = server
        self.health_only = False
        """over the connection limit: answers only health checks"""
        self._line: deque[Exchange] = deque()
        """unanswered requests; the first is being answered"""
        self._receiving: Exchange | None = None
        self._running = False
        self._held = 0
        self._deaf = False
        """input is no longer parsed: the connection is ending"""
        self._half_closed = False
        """the client sends no more, and may have gone"""
        self._active = server.now
        self._piece_bytes = 0
        self._head_bytes = 0
        """upper bound; 0 between heads"""
        self._head_since: float | None = None
        self._blocked_since: float | None = None
        self._lingering_since: float | None = None

    # Called by exchanges

    @property
    def date_line(self) -> bytes:
        return self._server.date_line

    @property
    def draining(self) -> bool:
        return self._server.draining

    def write(self, data: bytes) -> None:
        self._active = self._server.now
        self._transport.write(data)

    def write_all(self, parts: list[bytes]) -> None:
        self._active = self._server.now
        self._transport.writelines(parts)

    def finished(self, exchange: Exchange) -> None:
        exchange.done = True
        # Breaks the reference cycle, so that both are freed at once.
        exchange.handler = None
        if len(self._line) > 1 and not self._running:
            # In the loop's next turn: the caller has not yet released what this request held.
            asyncio.get_running_loop().call_soon(self._go_on)
        else:
            self._run_line()

    def abort(self) -> None:
        self._deaf = True
        self._transport.abort()

    def hold(self) -> None:
        self._pause(_FOR_HANDLER)

    def release(self) -> None:
        self._unpause(_FOR_HANDLER)

    # Called to make room for other clients

    @property
    def is_answering(self) -> bool:
        return bool(self._line)

    @property
    def is_sending(self) -> bool:
        """Whether the client has yet to read part of an answer."""
        return self._transport.get_write_buffer_size() > 0

    def turn_away(self) -> None:
        if self._lingering_since is not None:
            self._transport.abort()  # has its answer
            return
        self._transport.write(_TOO_MANY % self._server.next_request_id())
        self._deaf = True
        self._transport.close()

    def evict(self) -> None:
        self._deaf = True
        if self.is_sending:
            self._transport.abort()  # a graceful close would hang, as the client does not read
        else:
            self._transport.close()

    # Called by the server's sweep

    def cut_off_if_overdue(self, now: float) -> None:
        limits = self._server.limits
        if self._half_closed:
            self._find_out_if_gone()
        if self._lingering_since is not None:
            quiet = now - self._active > LINGER_IDLE_SECONDS
            if quiet or now - self._lingering_since > LINGER_SECONDS:
                self._transport.abort()
        elif self._blocked_since is not None:
            if now - self._blocked_since > limits.stall_seconds:
                self._cut_off(Limit.STALL)
        elif self._head_since is not None and not self._held:
            if now - self._head_since > limits.head_seconds:
                self._count(Limit.HEAD_TIMEOUT)
                self._refuse(bad_http("The request's head took too long to come.", 408))
        elif self._line and (self._line[-1].is_whole or self._held):
            if now - self._active > ANSWER_STALL_SECONDS:
                self._cut_off(Limit.ANSWER_STALL)
        elif self._line or self._deaf:
            # The client has to send the rest of a body, or to read before we close.
            if now - self._active > limits.stall_seconds:
                self._cut_off(Limit.STALL)
        else:
            self._close_if_idle(now)

    def _close_if_idle(self, now: float) -> None:
        draining = self._server.draining
        limit = DRAIN_IDLE_SECONDS if draining else self._server.limits.idle_seconds
        if now - self._active > limit:
            if not draining:
                self._count(Limit.IDLE)
            self._deaf = True
            self._active = now
            self._transport.close()

    def _cut_off(self, limit: Limit) -> None:
        self._count(limit)
        self._transport.abort()

    def _count(self, limit: Limit) -> None:
        self._server.limit_hits[limit] += 1

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if not self._server.admit(self):
            self.turn_away()
            return
        self._parser = httptools.HttpRequestParser(self)
        self._server.went_idle(self)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            if self._lingering_since is not None:
                self._active = self._server.now
            return
        self._active = self._server.now
        self._piece_bytes = len(data)
        if self._head_since is not None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Declined by an ordinary answer.
            self._deaf = True
        except httptools.HttpParserCallbackError:
            self._cut_off_unhandled()
        except httptools.HttpParserError as error:
            self._refuse(bad_http(f"The request is not valid HTTP/1.1: {error}."))
        else:
            if self._head_bytes > self._server.limits.head_bytes + MAX_PIECE_BYTES:
                self._refuse_endless_head()
            if len(self._line) > 1:
                self._pause(_FOR_LINE)

    def eof_received(self) -> bool:
        """Keeps the connection for a client that closed its side and waits for answers."""
        tail = self._line[-1] if self._line else None
        if tail is not None and not tail.is_whole and tail.refusal is None:
            self._line.pop()
            _drop(tail)
        if not self._line or self._line[0].begun:
            return False
        last = self._line[-1]
        last.keep_alive = False
        self._deaf = self._half_closed = True
        self._head_since = None
        self._find_out_if_gone()
        return True

    def _find_out_if_gone(self) -> None:
        """Sends an interim answer: if the client is gone, the second one fails, and its requests
        need no work."""
        first = self._line[0] if self._line else None
        if first is not None and not (first.begun or first.legacy):
            self._transport.write(CONTINUE)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = True
        self._parser = None
        self._receiving = None
        self._server.lost(self)
        line, self._line = self._line, deque()
        for exchange in line:
            if not exchange.done:
                _drop(exchange)

    def pause_writing(self) -> None:
        self._blocked_since = self._server.now
        if self._line and self._line[0].handler is not None:
            self._line[0].handler.client_full()

    def resume_writing(self) -> None:
        self._blocked_since = None
        if self._line and self._line[0].handler is not None:
            self._line[0].handler.client_drained()
        else:
            self._go_on()

    # Called by the parser

    def on_message_begin(self) -> None:
        self._server.went_busy(self)
        self._receiving = Exchange(self, self._server.next_request_id())
        self._head_since = self._server.now
        self._head_bytes = self._piece_bytes

    def on_url(self, part: bytes) -> None:
        if self._receiving is not None:
            self._receiving.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        # Later fields are trailers, which no receiver uses.
        if self._receiving is not None and self._head_since is not None:
            self._receiving.headers.append((name, value))

    def on_headers_complete(self) -> None:
        exchange = self._receiving
        self._head_since = None
        if exchange is None or self._deaf:
            self._receiving = None
            return
        parser = self._parser
        exchange.method = parser.get_method()
        upgrades = parser.should_upgrade()
        exchange.keep_alive = parser.should_keep_alive() and not upgrades
        exchange.fields = joined_fields(exchange.headers)
        version = parser.get_http_version()
        exchange.legacy = version != "1.1"
        refusal = passed_bound(exchange, self._head_bytes, self._server.limits.head_bytes)
        if refusal is not None:
            self._count(Limit.HEAD)
        else:
            refusal = fault_in(exchange, version, upgrades)
        if refusal is not None:
            # Even if the request is complete: what follows may have been meant as a part of it.
            exchange.refusal = refusal
            exchange.keep_alive = False
        self._head_bytes = 0
        self._line.append(exchange)
        self._run_line()

    def on_body(self, data: bytes) -> None:
        exchange = self._receiving
        if exchange is None or exchange.done:
            return
        if exchange.handler is None:
            exchange.early.append(data)
        else:
            exchange.handler.body(data)

    def on_message_complete(self) -> None:
        exchange, self._receiving = self._receiving, None
        if exchange is None:
            return
        exchange.is_whole = True
        if exchange.handler is not None and not exchange.done:
            exchange.handler.whole()
        else:
            self._note_if_idle()

    # The queue of requests

    def _run_line(self) -> None:
        if self._running:
            return  # a loop further down the stack continues; avoids recursion
        self._running = True
        try:
            self._answer_in_order()
        finally:
            self._running = False
        self._note_if_idle()
        if self._held and len(self._line) < 2:
            self._unpause(_FOR_LINE)

    def _note_if_idle(self) -> None:
        if not self._line and self._receiving is None and not self._deaf:
            self._server.went_idle(self)

    def _go_on(self) -> None:
        """For the event loop, which would not cut off the client on an exception."""
        try:
            self._run_line()
        except Exception:
            self._cut_off_unhandled()

    def _answer_in_order(self) -> None:
        line = self._line
        while line:
            exchange = line[0]
            if exchange.done:
                line.popleft()
                if exchange.closes:
                    self._hang_up(exchange)
                    break
            elif exchange.handler is None and self._blocked_since is None:
                self._take_up(exchange)
            else:
                break

    def _take_up(self, exchange: Exchange) -> None:
        handler = exchange.handler = self._handler_of(exchange)
        handler.begin()
        for part in exchange.early:
            if not exchange.done:
                handler.body(part)
        exchange.early.clear()
        if exchange.is_whole and not exchange.done:
            handler.whole()

    def _handler_of(self, exchange: Exchange) -> Handler:
        if exchange.refusal is not None:
            return RuntimeRefusal(exchange, exchange.refusal)
        if self.health_only:
            exchange.keep_alive = False
            if exchange.target.partition(b"?")[0] != HEALTH:
                return ControlUnavailable(exchange, _FULL % self._server.limits.connections)
        return self._server.dispatch(exchange)

    def _cut_off_unhandled(self) -> None:
        """Must be called while an exception is handled."""
        log.exception("A request could not be handled and its client is cut off.")
        self.abort()

    def _refuse(self, error: AwsError) -> None:
        """Answers unreadable input with an error, after the answers that are due."""
        if self._deaf:
            return  # a refused head was the last request
        self._deaf = True
        self._head_since = None
        tail = self._line[-1] if self._line else None
        if tail is not None and not tail.is_whole:
            # The unreadable input is in this request's body.
            if tail.begun:
                self.abort()
                return
            self._line.pop()
            _drop(tail)
        exchange = Exchange(self, self._server.next_request_id())
        exchange.refusal = error
        self._line.append(exchange)
        self._run_line()

    def _refuse_endless_head(self) -> None:
        target = b"" if self._receiving is None else self._receiving.target
        self._count(Limit.HEAD)
        self._refuse(endless(target, self._server.limits.head_bytes))

    def _hang_up(self, exchange: Exchange) -> None:
        self._deaf = True
        self._line.clear()
        if exchange.is_whole or self._transport.is_closing():
            self._transport.close()
            return
        # The client still sends: closing now would reset the connection and lose the answer. Shut
        # down our side, and discard input for a while.
        self._lingering_since = self._server.now
        self._server.went_idle(self)
        self._held = 0
        self._transport.write_eof()
        self._transport.resume_reading()

    def _pause(self, reason: int) -> None:
        if not self._held and not self._transport.is_closing():
            self._transport.pause_reading()
        self._held |= reason

    def _unpause(self, reason: int) -> None:
        if not self._held:
            return
        self._held &= ~reason
        if not self._held and not self._transport.is_closing():
            self._active = self._server.now
            self._transport.resume_reading()


def _drop(exchange: Exchange) -> None:
    exchange.done = True
    handler, exchange.handler = exchange.handler, None
    if handler is not None:
        handler.client_gone()


_FULL = (
    "This gateway has %d clients connected already, and works on something for each "
    "(max_connections). Try again in a moment."
)
_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"x-amzn-ErrorType: ServiceUnavailable\r\nx-amzn-RequestId: %b\r\n"
    b"Content-Length: 0\r\n\r\n"
)
