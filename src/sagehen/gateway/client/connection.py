"""One client's connection: HTTP/1.1 to exchanges, which are answered in order."""

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
"""Of what is received at once: so much may have come before a head in its first piece."""
# What depends on clients and their networks is set: see ClientLimits. These stay.
ANSWER_STALL_SECONDS = 900.0
"""For the next piece of an answer: S3 may copy or put together gigabytes without a word."""
LINGER_IDLE_SECONDS = 10.0
"""For the next piece from a client that still sends when its answer is written."""
LINGER_SECONDS = 120.0
"""For all of what such a client still sends: most libraries read the answer only after that."""
DRAIN_IDLE_SECONDS = 1.0
"""For an idle connection of a draining server: a request may be on its way."""

WRITE_BUFFER_BYTES = 256 * 1024
"""What may wait for a slow client before whoever answers is told to pause."""

HEALTH = b"/_sagehen/health"

# Why reading is paused; both at once are possible.
_FOR_HANDLER = 1
_FOR_LINE = 2


class ConnectionHost(Protocol):
    """What a connection needs of its server."""

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
    """Parses requests as they come; a request is taken up when those before it are answered."""

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
    """They know each other: it is there while the connection is, so that both are freed at once."""

    def __init__(self, server: ConnectionHost) -> None:
        self._server = server
        self.health_only = False
        """It is beyond the limit of connections: only the server's health is told on it."""
        self._line: deque[Exchange] = deque()
        """Requests not yet answered; the first is being answered."""
        self._receiving: Exchange | None = None
        """The request whose bytes come now."""
        self._running = False
        self._held = 0
        self._deaf = False
        """Nothing that comes is parsed any more: the connection is to end."""
        self._half_closed = False
        """The client sends no more, and may have gone."""
        self._active = server.now
        self._piece_bytes = 0
        self._head_bytes = 0
        """Of the head that comes now, at most; 0 between heads."""
        self._head_since: float | None = None
        self._blocked_since: float | None = None
        self._lingering_since: float | None = None

    # What an exchange uses

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
        # They know each other: apart, both are freed at once and not by the collector.
        exchange.handler = None
        if len(self._line) > 1 and not self._running:
            # In a turn of its own: whoever calls us is not done with what this request held, and
            # need not be ready for another one.
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

    # What the server uses to have room for others

    @property
    def is_answering(self) -> bool:
        """A request is here and not yet answered."""
        return bool(self._line)

    @property
    def is_sending(self) -> bool:
        """Something of an answer still waits for the client to read it."""
        return self._transport.get_write_buffer_size() > 0

    def turn_away(self) -> None:
        """Say that there are too many clients, and end the connection."""
        if self._lingering_since is not None:
            self._transport.abort()  # It has its answer.
            return
        self._transport.write(_TOO_MANY % self._server.next_request_id())
        self._deaf = True
        self._transport.close()

    def evict(self) -> None:
        """End an idle connection."""
        self._deaf = True
        if self.is_sending:
            self._transport.abort()  # The client does not read: the end would not come through.
        else:
            self._transport.close()

    # What the server's sweep uses

    def cut_off_if_overdue(self, now: float) -> None:
        """End the connection if the client has taken longer than it may."""
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
            # It is to send the rest of a body, or to take the last bytes before we close.
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

    # What asyncio calls

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
            # Declined by an ordinary answer, after which the connection ends.
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
        """Whether the connection stays: a client may shut down its side and wait for answers."""
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
        """An interim answer, which tells a client nothing: by the second one, one is refused that
        has closed its connection, and what it asked for need not be done."""
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

    # What the parser calls

    def on_message_begin(self) -> None:
        self._server.went_busy(self)
        self._receiving = Exchange(self, self._server.next_request_id())
        self._head_since = self._server.now
        self._head_bytes = self._piece_bytes

    def on_url(self, part: bytes) -> None:
        if self._receiving is not None:
            self._receiving.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        # After the head these are trailers: nothing that we relay to knows any.
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
            # Also where all of it is here: what follows may have been meant as a part of it.
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

    # The line

    def _run_line(self) -> None:
        """Take up the next request, if the one before it is answered."""
        if self._running:
            return  # A loop below us on the stack goes on: recursion would know no bound.
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
        """Run the line from the event loop, which knows nothing of this client."""
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
        """To be called as an exception is handled."""
        log.exception("A request could not be handled and its client is cut off.")
        self.abort()

    def _refuse(self, error: AwsError) -> None:
        """Answer what cannot be read as a request, after what is still to be answered; then end."""
        if self._deaf:
            return  # The last answer is written: it was refused for what its head says.
        self._deaf = True
        self._head_since = None
        tail = self._line[-1] if self._line else None
        if tail is not None and not tail.is_whole:
            # It is this one's body that cannot be read.
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
        # The client still sends. Closing now would reset the connection, and throw away the answer
        # before it is read; so we say that we are done, and discard what comes for a while.
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
