"""A server's HTTP/1.1 connection: parses pipelined requests and cuts off slow clients."""

import asyncio
from typing import cast

import httptools

from sagehen.http1.exchange import CONTINUE, RequestFault
from sagehen.http1.fields import Headers, joined_fields
from sagehen.http1.limits import ConnectionLimit
from sagehen.http1.request_head import KnownHeads, ambiguity, endless, excess, head_of
from sagehen.http1.request_queue import (
    FOR_QUEUE,
    FOR_WRITING,
    ConnectionHost,
    RequestQueue,
    drop,
)

__all__ = ["ServerConnection"]

LINGER_IDLE_SECONDS = 10.0
"""for the next piece from a client that still sends after its answer"""
LINGER_SECONDS = 120.0
"""for all that such a client sends: most libraries read the answer only afterwards"""
DRAIN_IDLE_SECONDS = 1.0
"""for idle connections of a draining server: a request may be on its way"""
WRITE_BUFFER_BYTES = 256 * 1024
"""may wait for a slow client before the handler is paused"""


class ServerConnection(RequestQueue, asyncio.Protocol):
    """Parses requests as they arrive, and has each answered when the earlier ones are.

    A server's own connection class makes the exchanges and says who handles them.

    Args:
        known_heads: shared by the connections of a server whose clients repeat the same heads.
    """

    __slots__ = (
        "_half_closed",
        "_head_bytes",
        "_head_since",
        "_known_heads",
        "_new_head",
        "_parser",
        "_piece_bytes",
        "_received_headers",
    )

    keeps_half_closed = True
    """a client that closed its side waits for answers; else it is gone"""

    _parser: httptools.HttpRequestParser
    """deleted when the connection ends, to break the reference cycle"""

    def __init__(self, host: ConnectionHost, known_heads: KnownHeads | None = None) -> None:
        super().__init__(host)
        self._known_heads = known_heads
        self._new_head: bytes | None = None
        """of the request being received, if it is worth learning"""
        self._half_closed = False
        """the client sends no more, and may have gone"""
        self._piece_bytes = 0
        self._head_bytes = 0
        """upper bound, of a head, or of chunk sizes and trailers since the last piece of a body; 0
        between requests"""
        self._head_since: float | None = None
        self._received_headers: Headers | None = None
        """of the request whose head is being received"""

    # Called by the server's sweep

    def cut_off_if_overdue(self, now: float) -> None:
        limits = self._host.limits
        if self._half_closed:
            self._probe()
        if self._lingering_since is not None:
            quiet = now - self._active > LINGER_IDLE_SECONDS
            if quiet or now - self._lingering_since > LINGER_SECONDS:
                self._transport.abort()
        elif self._blocked_since is not None:
            if now - self._blocked_since > limits.stall_seconds:
                self._cut_off(ConnectionLimit.STALL)
        elif self._head_since is not None and not self._paused_for:
            if now - self._head_since > limits.head_seconds:
                self._host.limit_hit(ConnectionLimit.HEAD_TIMEOUT)
                self._refuse(RequestFault("The request's head took too long to come.", 408))
        elif self._unanswered and (self._unanswered[-1].is_whole or self._paused_for):
            if now - self._active > limits.answer_seconds:
                self._cut_off(ConnectionLimit.ANSWER_STALL)
        elif self._unanswered or self._discarding:
            # The client has to send the rest of a body, or to read before we close.
            if now - self._active > limits.stall_seconds:
                self._cut_off(ConnectionLimit.STALL)
        else:
            self._close_if_idle(now)

    def _close_if_idle(self, now: float) -> None:
        draining = self._host.draining
        limit = DRAIN_IDLE_SECONDS if draining else self._host.limits.idle_seconds
        if now - self._active > limit:
            if not draining:
                self._host.limit_hit(ConnectionLimit.IDLE)
            self._discarding = True
            self._active = now
            self._transport.close()

    def _cut_off(self, limit: ConnectionLimit) -> None:
        self._host.limit_hit(limit)
        self._transport.abort()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            if self._lingering_since is not None:
                self._active = self._host.now
            return
        self._active = self._host.now
        if self._known_heads is not None and self._receives_known(self._known_heads, data):
            return
        self._piece_bytes = len(data)
        if self._receiving is not None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Declined by an ordinary answer.
            self._discarding = True
        except httptools.HttpParserCallbackError:
            self._cut_off_unhandled()
        except httptools.HttpParserError as error:
            self._refuse(RequestFault(f"The request is not valid HTTP/1.1: {error}."))
        else:
            if self._head_bytes:
                self._refuse_if_endless()
            if len(self._unanswered) > self.begun_at_once:
                self._pause(FOR_QUEUE)

    def _receives_known(self, known_heads: KnownHeads, data: bytes) -> bool:
        """Receives one whole request with a known head, without the parser.

        Only while no request is received or unanswered: the parser is between two messages then,
        and none of those before was to be the connection's last.
        """
        self._new_head = None
        if self._receiving is not None or self._unanswered:
            return False
        head = head_of(data)
        known = known_heads.find(head)
        if known is None:
            if known_heads.is_worth_learning(head):
                self._new_head = head
            return False
        body_bytes, method, target, headers, fields, raw_fields = known
        if len(data) != len(head) + body_bytes:
            return False
        self._host.went_busy(self)
        exchange = self.make_exchange()
        exchange.method, exchange.target, exchange.headers = method, target, headers
        exchange.fields, exchange.raw_fields = fields, raw_fields
        if body_bytes:
            exchange.early = [data[len(head) :]]
        exchange.is_whole = True
        self._append(exchange)
        return True

    def eof_received(self) -> bool:
        """Keeps the connection for a client that closed its side and waits for answers."""
        last = self._unanswered[-1] if self._unanswered else None
        if last is not None and not last.is_whole and last.fault is None:
            self._unanswered.pop()
            drop(last)
        if not self._unanswered or self._unanswered[0].begun or not self.keeps_half_closed:
            return False
        self._unanswered[-1].keep_alive = False
        self._discarding = self._half_closed = True
        self._head_since = None
        self._probe()
        return True

    def _probe(self) -> None:
        """Sends an interim answer: if the client is gone, the second one fails, and its requests
        need no work."""
        first = self._unanswered[0] if self._unanswered else None
        if first is not None and not (first.begun or first.legacy):
            self._transport.write(CONTINUE)

    def connection_lost(self, exc: Exception | None) -> None:
        self._discarding = True
        self._parser = None
        self._receiving = None
        self._host.lost(self)
        self._drop_unanswered()

    def pause_writing(self) -> None:
        self._blocked_since = self._host.now
        if self._unanswered and self._unanswered[0].handler is not None:
            self._unanswered[0].handler.client_full()
        if self.begun_at_once > 1:
            self._pause(FOR_WRITING)

    def resume_writing(self) -> None:
        self._blocked_since = None
        self._unpause(FOR_WRITING)
        if self._unanswered and self._unanswered[0].handler is not None:
            self._unanswered[0].handler.client_drained()
        else:
            self._go_on()

    # Called by the parser

    def on_message_begin(self) -> None:
        self._host.went_busy(self)
        self._receiving = exchange = self.make_exchange()
        self._received_headers = exchange.headers
        self._head_since = self._active
        self._head_bytes = self._piece_bytes

    def on_url(self, part: bytes) -> None:
        if self._receiving is not None:
            self._receiving.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        # Later fields are trailers, which no receiver uses.
        if self._received_headers is not None:
            self._received_headers.append((name, value))

    def on_headers_complete(self) -> None:
        exchange = self._receiving
        self._head_since = self._received_headers = None
        if exchange is None or self._discarding:
            self._receiving = None
            return
        parser = self._parser
        exchange.method = parser.get_method()
        upgrades = parser.should_upgrade()
        exchange.keep_alive = parser.should_keep_alive() and not upgrades
        exchange.fields = joined_fields(exchange.headers)
        version = parser.get_http_version()
        exchange.legacy = version != "1.1"
        fault = excess(exchange, self._head_bytes, self._host.limits)
        if fault is not None:
            self._host.limit_hit(ConnectionLimit.HEAD)
        else:
            fault = ambiguity(exchange, version, upgrades)
        if fault is not None:
            # Even if the request is complete: what follows may have been meant as a part of it.
            exchange.fault = fault
            exchange.keep_alive = False
        self._head_bytes = 0
        self._append(exchange)

    def on_body(self, data: bytes) -> None:
        exchange = self._receiving
        # Framing in the same piece as body data does not count.
        self._head_bytes = 0
        if exchange is None or exchange.done:
            return
        if exchange.handler is not None:
            exchange.handler.body(data)
        elif exchange.early is None:
            exchange.early = [data]
        else:
            exchange.early.append(data)

    def on_message_complete(self) -> None:
        exchange, self._receiving = self._receiving, None
        self._head_bytes = 0
        if exchange is None:
            return
        exchange.is_whole = True
        if self._known_heads is not None and self._new_head is not None:
            self._known_heads.learn(self._new_head, exchange)
            self._new_head = None
        if exchange.handler is not None and not exchange.done:
            exchange.handler.whole()
        else:
            self._note_progress()

    def _refuse(self, fault: RequestFault) -> None:
        """Answers unreadable input with an error, after the answers that are due."""
        if self._discarding:
            return  # a refused head was the last request
        self._discarding = True
        self._head_since = None
        # Frees what they hold of the head while the connection lingers.
        self._receiving = self._parser = None
        last = self._unanswered[-1] if self._unanswered else None
        if last is not None and not last.is_whole:
            # The unreadable input is in this request's body.
            if last.begun:
                self.abort()
                return
            self._unanswered.pop()
            drop(last)
        exchange = self.make_exchange()
        exchange.fault = fault
        self._append(exchange)

    def _refuse_if_endless(self) -> None:
        """Bounds what the parser and the exchange hold of an unfinished head or trailer."""
        exchange, in_head = self._receiving, self._head_since is not None
        if exchange is None:
            return
        fault = endless(exchange, in_head, self._head_bytes, self._host.limits)
        if fault is not None:
            self._host.limit_hit(ConnectionLimit.HEAD)
            self._refuse(fault)
