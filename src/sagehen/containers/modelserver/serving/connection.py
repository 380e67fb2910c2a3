"""A client's connection to the model server: collects requests, and sends their answers.

The requests of one connection are predicted together; their answers leave in order.
"""

import asyncio
import logging
from functools import lru_cache

from sagehen.containers.modelserver.contract import ModelAnswer, ModelRequest
from sagehen.containers.modelserver.serving.body_budget import BodyReservation
from sagehen.containers.modelserver.serving.responses import (
    answer_too_large,
    body_too_large,
    error,
    not_started,
)
from sagehen.containers.modelserver.serving.server import (
    LARGE_BYTES,
    PIECE_BYTES,
    RECEIVE_SECONDS,
    ModelServer,
)
from sagehen.containers.modelserver.serving.streaming import AnswerStream
from sagehen.http1.exchange import Exchange, Handler
from sagehen.http1.fields import joined_raw_fields
from sagehen.http1.server import ServerConnection

__all__ = ["Connection", "ModelExchange", "answer_lines"]

log = logging.getLogger(__name__)

MAX_PIPELINED = 64
_BODILESS = frozenset((204, 304))


class Connection(ServerConnection):
    """Its requests begin at once, whether or not the earlier ones are answered."""

    __slots__ = ()

    begun_at_once = MAX_PIPELINED
    keeps_half_closed = False  # a gateway that ends a connection has lost its caller

    _host: ModelServer
    _receiving: "ModelExchange | None"

    def __init__(self, host: ModelServer) -> None:
        super().__init__(host, host.known_heads)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._host.connections.add(self)

    def make_exchange(self) -> "ModelExchange":
        exchange = ModelExchange(self)
        exchange.server = self._host
        return exchange

    def handler_of(self, exchange: "ModelExchange") -> Handler:
        return exchange

    def turn_of(self, exchange: "ModelExchange") -> None:
        exchange.its_turn()

    @property
    def is_receiving(self) -> bool:
        return self._receiving is not None

    def cut_off_if_overdue(self, now: float) -> None:
        exchange = self._receiving
        if exchange is not None and self._head_since is None and not exchange.done:
            if self._paused_for or exchange.receiving_since is None:
                exchange.receiving_since = now
            elif now - exchange.receiving_since > RECEIVE_SECONDS:
                self.abort()
                return
        super().cut_off_if_overdue(now)

    def turn_away(self) -> None:
        """Refuses a body that waits for memory."""
        if self._receiving is not None:
            self._receiving.turn_away()

    def close(self) -> None:
        """Closes after sending pending output."""
        self._transport.close()


class ModelExchange(Exchange):
    """One request, which is its own handler: a model's answer is sent when it is its turn."""

    server: ModelServer
    _request: ModelRequest | None = None
    """once the body is complete, until the answer is sent"""
    _answer: ModelAnswer | None = None
    _stream: AnswerStream | None = None
    """begun"""
    _reservation: BodyReservation | None = None
    """for a large body, until it is complete"""
    receiving_since: float | None = None
    """The first sweep that saw the present piece of PIECE_BYTES, so that the time in which this
    process could not read does not count."""
    _parts: list[bytes] | None = None
    """of the body, until it is complete"""
    _body_bytes = 0
    _streamed_bytes = 0

    # Called by the connection

    def begin(self) -> None:
        if self.fault is not None:
            message, status = self.fault
            self._refuse(error(status, "BadRequestException", message))
            return
        size = int(self.fields.get("content-length", 0))
        if size > self.server.max_body_bytes:
            self._refuse(body_too_large(self.server.max_body_bytes))
        elif size > LARGE_BYTES:
            self._reserve(size)
        elif "expect" in self.fields:
            self._ask_for_body()

    def body(self, data: bytes) -> None:
        if self._answer is not None:
            return  # refused, which waits for its turn
        pieces = self._body_bytes // PIECE_BYTES
        self._body_bytes += len(data)
        if self._body_bytes // PIECE_BYTES > pieces:
            self.receiving_since = None
        if self._body_bytes > self.server.max_body_bytes:
            self._refuse(body_too_large(self.server.max_body_bytes))
        elif self._parts is None:
            self._parts = [data]
        else:
            self._parts.append(data)

    def whole(self) -> None:
        if self._answer is not None:
            return
        parts = self._parts
        self._request = request = ModelRequest(
            self.method.decode("latin-1"),
            self.target.decode("latin-1"),
            self.raw_fields or joined_raw_fields(self.headers),
            b"" if parts is None else parts[0] if len(parts) == 1 else b"".join(parts),
            self._answered,
        )
        self._parts = None
        request.reservation, self._reservation = self._reservation, None
        self.server.begin(request)

    def its_turn(self) -> None:
        """The earlier requests of the connection are answered."""
        if self._answer is not None:
            self._send(self._answer)
        elif not self.is_whole and (self._reservation is None or self._reservation.granted):
            self.continue_if_expected()

    def client_full(self) -> None: ...

    def client_drained(self) -> None:
        if self._stream is not None:
            self._relay()

    def client_gone(self) -> None:
        self._release()
        request, self._request = self._request, None
        if request is None:
            return
        if request.answer is None:
            self.server.abandon(request)
        elif request.answer.stream is not None:
            self.server.abandon(request)
            request.answer.stream.abandon()
            self.server.end(request)

    # Receiving

    def _reserve(self, size: int) -> None:
        self._reservation = self.server.body_budget.reserve(size, self._granted)
        if self._reservation.granted:
            self._ask_for_body()
        elif self.server.draining:
            self.turn_away()
        else:
            self.channel.hold()

    def _granted(self) -> None:
        self.receiving_since = None
        self._ask_for_body()
        self.channel.release()

    def _ask_for_body(self) -> None:
        # Before its turn, the client would take an interim answer for that of an earlier request.
        if self.channel.is_current(self):
            self.continue_if_expected()

    def turn_away(self) -> None:
        """Refuses the body if it waits for memory."""
        if self._reservation is not None and not self._reservation.granted:
            self._refuse(not_started())

    def _release(self) -> None:
        if self._reservation is not None:
            self._reservation.release()
            self._reservation = None

    def _refuse(self, answer: ModelAnswer) -> None:
        self._release()
        self._parts = None
        self.channel.release()
        self._answer = answer
        if self.channel.is_current(self):
            self._send(answer)

    # Answering

    def _answered(self, request: ModelRequest) -> None:
        answer = request.answer
        assert answer is not None
        if answer.stream is None or request.abandoned:
            self.server.end(request)
        if request.abandoned:
            if answer.stream is not None:
                answer.stream.abandon()
            return
        self._answer = answer
        if self.channel.is_current(self):
            self._send(answer)

    def _send(self, answer: ModelAnswer) -> None:
        if len(answer.body) > self.server.max_answer_bytes:
            answer = answer_too_large(len(answer.body), self.server.max_answer_bytes)
        status, body, content_type, headers, closes, _, stream = answer
        if closes:
            self.keep_alive = False
        fields = answer_lines(content_type, headers)
        if stream is not None:
            self._begin_stream(status, fields, stream)
            return
        self._request = None
        if status in _BODILESS:  # a body would look like the next answer
            self.begin_answer(status, fields, None, bodiless=True)
            self.end_answer()
        else:
            self.answer(status, fields, body)

    def _begin_stream(self, status: int, fields: bytes, stream: AnswerStream) -> None:
        self._stream = stream
        self.begin_answer(status, fields, None, bodiless=False)
        stream.on_change = self._relay
        self._relay()

    def _relay(self) -> None:
        stream, channel = self._stream, self.channel
        assert stream is not None
        if not channel.is_current(self):
            return
        while not channel.is_blocked and (piece := stream.take()) is not None:
            self._streamed_bytes += len(piece)
            if self._streamed_bytes > self.server.max_answer_bytes:
                self._cut_short(stream)
                return
            self.continue_answer(piece)
        if stream.over:
            self._end_stream(stream, stream.whole)

    def _cut_short(self, stream: AnswerStream) -> None:
        """The answer is too long, but its head was sent."""
        log.error("%s", answer_too_large(self._streamed_bytes, self.server.max_answer_bytes).body)
        stream.abandon()
        self._end_stream(stream, whole=False)

    def _end_stream(self, stream: AnswerStream, whole: bool) -> None:
        stream.on_change = None
        request, self._request, self._stream = self._request, None, None
        assert request is not None
        self.server.end(request)
        if whole:
            self.end_answer()
        elif self.legacy:
            self.channel.abort()  # an orderly end would look like that of the answer
        else:
            # Without the final chunk, the client sees that it is incomplete.
            self.channel.break_off()


@lru_cache(maxsize=256)
def answer_lines(content_type: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    fields = [("content-type", content_type)] if content_type else []
    lines = [f"{_clean(name)}: {_clean(value)}\r\n" for name, value in (*fields, *headers)]
    return "".join(lines).encode("latin-1", "replace")


def _clean(text: str) -> str:
    """Prevents header injection by user code."""
    return text.replace("\r", " ").replace("\n", " ")
