"""One client connection: an asyncio protocol on httptools.

It supports keep-alive, pipelining (answers in the order of requests) and chunked bodies, with
limits on heads and bodies.
"""

import asyncio
import logging
from collections import deque
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple, cast

import httptools

from sagehen.containers.modelserver.contract import ModelAnswer, ModelRequest
from sagehen.containers.modelserver.serving.body_budget import Reservation
from sagehen.containers.modelserver.serving.responses import (
    answer_too_large,
    body_too_large,
    error,
    not_started,
)
from sagehen.containers.modelserver.serving.server import LARGE_BYTES, PIECE_BYTES, ModelServer
from sagehen.containers.modelserver.serving.streaming import AnswerStream

__all__ = ["Connection"]

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 * 1024
MAX_PIPELINED = 64
_LINGER_SECONDS = 2.0
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"


class _Turn(NamedTuple):
    request: ModelRequest
    keep_alive: bool
    legacy: bool
    """HTTP/1.0, without chunks."""


class Connection(asyncio.Protocol):
    """A client connection; httptools' parser calls its `on_…` methods."""

    _parser: httptools.HttpRequestParser
    """Refers back to this connection; deleted with it, so that both are freed at once."""

    def __init__(self, server: ModelServer) -> None:
        self.receiving_since = 0.0
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._unanswered: deque[_Turn] = deque()
        self._streaming: AnswerStream | None = None  # for _unanswered[0]
        self._deaf = False  # ignore further input
        self._paused = False
        self._write_blocked = False
        self._streamed_bytes = 0
        self._new_request()

    def _new_request(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._chunks: list[bytes] = []
        self._head_bytes = 0
        self._body_bytes = 0
        self._in_head = True
        self._stay: Reservation | None = None

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpRequestParser(self)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.lost(self)
        self._transport = None
        self._parser = None
        self._deaf = True
        self._leave()
        self._drop_unanswered()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(error(400, "BadRequestException", "Protocol upgrades are not served."))
        except httptools.HttpParserError as problem:
            self._refuse(error(400, "BadRequestException", f"The request is malformed: {problem}"))
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(
                error(431, "BadRequestException", f"The head is over {MAX_HEAD_BYTES} bytes.")
            )

    def pause_writing(self) -> None:
        self._write_blocked = True
        self._pace_reading()

    def resume_writing(self) -> None:
        self._write_blocked = False
        self._pace_reading()
        if self._streaming is not None:
            self._relay()

    # Called by the parser

    def on_message_begin(self) -> None:
        self.receiving_since = self._server.clock.monotonic()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # ignore trailers
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._deaf:
            return
        length = self._headers.get(b"content-length", b"0")
        size = int(length) if length.isdigit() else 0
        if size > self._server.max_body_bytes:
            self._refuse_body()
        elif size > LARGE_BYTES:
            self._stay = self._server.room.enter(size, self._let_in)
            if self._stay.entered:
                self._let_in()
            elif self._server.draining:
                self.turn_away()
            else:
                self.receiving_since = 0.0
                self._pace_reading()
        else:
            self._expect_body()

    def _let_in(self) -> None:
        self.receiving_since = self._server.clock.monotonic()
        self._expect_body()
        self._pace_reading()

    def _expect_body(self) -> None:
        if b"expect" in self._headers and self._transport is not None:
            self._transport.write(_CONTINUE)

    @property
    def _waits_for_room(self) -> bool:
        return self._stay is not None and not self._stay.entered

    def turn_away(self) -> None:
        if self._waits_for_room:
            self._refuse(not_started())

    def _leave(self) -> None:
        if self._stay is not None:
            self._stay.leave()
            self._stay = None

    def on_body(self, body: bytes) -> None:
        pieces = self._body_bytes // PIECE_BYTES
        self._body_bytes += len(body)
        if self._body_bytes // PIECE_BYTES > pieces:
            self.receiving_since = self._server.clock.monotonic()
        if self._body_bytes > self._server.max_body_bytes:
            self._refuse_body()
        elif not self._deaf:
            self._chunks.append(body)

    def on_message_complete(self) -> None:
        self.receiving_since = 0.0
        if self._deaf:
            return
        chunks = self._chunks
        request = ModelRequest(
            self._parser.get_method().decode("latin-1"),
            self._url.decode("latin-1"),
            self._headers,
            chunks[0] if len(chunks) == 1 else b"".join(chunks),
            self._answered,
        )
        request.stay = self._stay
        legacy = self._parser.get_http_version() == "1.0"
        self._unanswered.append(_Turn(request, self._parser.should_keep_alive(), legacy))
        self._new_request()
        if len(self._unanswered) >= MAX_PIPELINED:
            self._pace_reading()
        self._server.begin(request)

    # Answers

    def _answered(self, request: ModelRequest) -> None:
        stream = None if request.answer is None else request.answer.stream
        if stream is None or request.abandoned:
            self._server.end(request)
        if stream is not None and request.abandoned:
            stream.abandon()
        self._flush()

    def _flush(self) -> None:
        unanswered = self._unanswered
        while self._streaming is None and unanswered:
            turn = unanswered[0]
            answer = turn.request.answer
            if answer is None:
                break
            if answer.stream is not None:
                self._begin_stream(turn, answer, answer.stream)
                continue
            unanswered.popleft()
            self._send(answer, turn.keep_alive and not answer.close)
        if self._paused:
            self._pace_reading()

    def _send(self, answer: ModelAnswer, keep_alive: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if len(answer.body) > self._server.max_answer_bytes:
            answer = answer_too_large(len(answer.body), self._server.max_answer_bytes)
        head = _head(answer.status, answer.content_type, answer.headers, keep_alive)
        if answer.status in (204, 304):  # a body would look like the next answer
            transport.write(head + b"\r\n")
        else:
            transport.write(
                b"%bcontent-length: %d\r\n\r\n%b" % (head, len(answer.body), answer.body)
            )
        if not keep_alive:
            self._drop_unanswered()
            self._finish(transport)

    def _begin_stream(self, turn: "_Turn", answer: ModelAnswer, stream: AnswerStream) -> None:
        self._streaming = stream
        self._streamed_bytes = 0
        keep_alive = turn.keep_alive and not turn.legacy
        head = _head(answer.status, answer.content_type, answer.headers, keep_alive)
        framing = b"" if turn.legacy else b"transfer-encoding: chunked\r\n"
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"%b%b\r\n" % (head, framing))
        stream.on_change = self._relay
        self._relay()

    def _relay(self) -> None:
        stream, transport, turn = self._streaming, self._transport, self._unanswered[0]
        assert stream is not None
        if transport is None or transport.is_closing():
            return  # connection_lost follows
        while not self._write_blocked and (piece := stream.take()) is not None:
            self._streamed_bytes += len(piece)
            if self._streamed_bytes > self._server.max_answer_bytes:
                self._break_off(turn, stream, transport)
                return
            if turn.legacy:
                transport.write(piece)
            else:
                transport.writelines((b"%x\r\n" % len(piece), piece, b"\r\n"))
        if stream.over:
            self._end_stream(turn, stream, transport)

    def _end_stream(
        self, turn: "_Turn", stream: AnswerStream, transport: asyncio.Transport
    ) -> None:
        self._streaming = None
        self._unanswered.popleft()
        self._server.end(turn.request)
        if not stream.whole:
            # Without the final chunk, the client sees that it is incomplete.
            self._drop_unanswered()
            self._deaf = True
            transport.close()
        elif turn.legacy or not turn.keep_alive:
            transport.write(b"" if turn.legacy else _LAST_CHUNK)
            self._drop_unanswered()
            self._finish(transport)
        else:
            transport.write(_LAST_CHUNK)
            self._flush()

    def _break_off(self, turn: "_Turn", stream: AnswerStream, transport: asyncio.Transport) -> None:
        """Closes the connection: the answer is too long, but its head was sent."""
        log.error("%s", answer_too_large(self._streamed_bytes, self._server.max_answer_bytes).body)
        stream.abandon()
        stream.whole = False
        self._end_stream(turn, stream, transport)

    def _drop_unanswered(self) -> None:
        self._streaming = None
        dropped = tuple(self._unanswered)
        self._unanswered.clear()
        for turn in dropped:
            request = turn.request
            if request.answer is None:
                self._server.abandon(request)
            elif request.answer.stream is not None:
                self._server.abandon(request)
                request.answer.stream.abandon()
                self._server.end(request)

    def _finish(self, transport: asyncio.Transport) -> None:
        if self._deaf and transport.can_write_eof():
            # Closing with unread bytes resets the connection and loses the answer: let the client
            # read it.
            transport.write_eof()
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self.abort)
        else:
            transport.close()
        self._deaf = True

    def _refuse_body(self) -> None:
        if not self._deaf:
            self._refuse(body_too_large(self._server.max_body_bytes))

    def _refuse(self, answer: ModelAnswer) -> None:
        """Answers in order, then reads no more."""
        if self._deaf:
            return
        self._deaf = True
        self.receiving_since = 0.0
        self._leave()
        self._pace_reading()
        refused = ModelRequest("", "", {}, b"", lambda _: self._flush())
        self._unanswered.append(_Turn(refused, False, False))
        refused.respond(answer)

    def _pace_reading(self) -> None:
        """Pauses while the client does not read, pipelines too much or waits for memory."""
        if self._transport is None or self._transport.is_closing():
            return
        asks_too_far = len(self._unanswered) >= MAX_PIPELINED
        pause = self._write_blocked or asks_too_far or self._waits_for_room
        if pause != self._paused:
            self._paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def close(self) -> None:
        """Closes after sending pending output."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


@lru_cache(maxsize=256)
def _head(
    status: int, content_type: str, headers: tuple[tuple[str, str], ...], keep_alive: bool
) -> bytes:
    """Returns the head up to content-length."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}"]
    if content_type:
        lines.append(f"content-type: {_clean(content_type)}")
    lines += [f"{_clean(name)}: {_clean(value)}" for name, value in headers]
    if not keep_alive:
        lines.append("connection: close")
    lines.append("")
    return "\r\n".join(lines).encode("latin-1", "replace")


def _clean(text: str) -> str:
    """Prevents header injection by user code."""
    return text.replace("\r", " ").replace("\n", " ")
