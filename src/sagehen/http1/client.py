"""A client's HTTP/1.1 connection, with one request at a time."""

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Protocol, cast

import httptools

from sagehen.http1.exchange import JOINED_BYTES
from sagehen.http1.fields import Headers
from sagehen.http1.limits import MAX_PIECE_BYTES

__all__ = ["ClientConnection", "Receiver"]

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 256 * 1024
"""of an answer's head and trailers"""


class Receiver(Protocol):
    """Gets the answer to one request, by calls in this order."""

    def answer_interim(self, status: int, headers: Headers) -> None:
        """A 1xx answer; the final one follows."""

    def answer_begins(self, status: int, headers: Headers, length: int | None) -> None:
        """`length`: of the body; None if unknown."""

    def answer_continues(self, data: bytes) -> None: ...

    def answer_ends(self) -> None:
        """The answer is complete; the connection is free or closed."""

    def answer_breaks(self) -> None:
        """The connection was lost; the last call."""

    def upstream_full(self) -> None:
        """Pause until `upstream_drained`."""

    def upstream_drained(self) -> None: ...


class ClientConnection(asyncio.Protocol):
    """Sends requests and parses answers.

    Args:
        freed: called when the next request may start.
        lost: called once, when the connection is gone.
        is_local: a Unix socket, where a reset means that data was left unread.
    """

    __slots__ = (
        "_bodiless",
        "_ended",
        "_framing_bytes",
        "_freed",
        "_headers",
        "_in_head",
        "_interim",
        "_is_local",
        "_lost",
        "_open_ended",
        "_parser",
        "_paused",
        "_receiver",
        "_unsent",
        "broken",
        "fault",
        "idle_since",
        "not_begun",
        "reusable",
        "transport",
    )

    transport: asyncio.Transport
    _parser: httptools.HttpResponseParser
    """deleted when the connection ends, to break the reference cycle"""

    def __init__(
        self,
        freed: Callable[["ClientConnection"], None],
        lost: Callable[["ClientConnection"], None],
        is_local: bool = False,
    ) -> None:
        self._freed = freed
        self._lost = lost
        self._is_local = is_local
        self._receiver: Receiver | None = None
        self._bodiless = False
        self._ended = False
        self._in_head = True
        self._interim = False
        self._open_ended = False
        self._paused = False
        self._headers: Headers = []
        self._framing_bytes = 0
        """head, chunk sizes and trailers since the last piece of a body"""
        self._unsent = 0
        """bytes of the request's body that `send` announced and `write` has not had"""
        self.reusable = True
        self.idle_since = 0.0
        self.broken = False
        """lost before the answer was complete"""
        self.fault: str | None = None
        """why the answer could not be read, if that is why it broke"""
        self.not_begun = False
        """lost before the peer had read the request, which a model server begins only as a whole"""

    def begin(self, receiver: Receiver, bodiless: bool = False) -> None:
        """The request follows by `write`. `bodiless`: a HEAD, whose answer has no body."""
        self._receiver = receiver
        self._bodiless = bodiless
        self._ended = False
        self._in_head = True
        self._framing_bytes = 0
        self._unsent = 0

    def send(
        self, receiver: Receiver, path: bytes, header_lines: bytes, body: list[bytes], size: int
    ) -> None:
        """POSTs a body of `size` bytes: `body`, and what follows by `write`."""
        self.begin(receiver)
        self._unsent = size - sum(map(len, body))
        head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%b\r\n" % (
            path,
            size,
            header_lines,
        )
        if size <= JOINED_BYTES:
            self.transport.write(b"".join([head, *body]))
        else:
            self.transport.writelines([head, *body])

    def write(self, data: bytes) -> None:
        self._unsent -= len(data)
        self.transport.write(data)

    def write_all(self, parts: list[bytes]) -> None:
        self.transport.writelines(parts)

    def pause(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self._paused and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    def abandon(self) -> None:
        """Closes the connection, as nobody wants the answer."""
        self._receiver = None
        self.transport.abort()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        if self._receiver is None:
            # Unsolicited data: the connection cannot be trusted with a request.
            self.transport.abort()
            return
        if not self._parse(data):
            self._break()
            return
        # Not in the parser's callback: the rest of `data` must not be taken for the next answer.
        if self._ended:
            self._end()
            return
        self._framing_bytes += len(data)
        if self._framing_bytes > MAX_HEAD_BYTES:
            self.fault = f"the head has more than {MAX_HEAD_BYTES} bytes"
            self._break()

    def _parse(self, data: bytes) -> bool:
        """Returns False for an invalid piece."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if isinstance(error, httptools.HttpParserCallbackError):
                log.exception("An answer could not be handled and is cut off.")
            self.fault = str(error)
            return False
        return True

    def _read_what_is_left(self) -> None:
        """Parses what the peer sent before it closed.

        A peer may refuse a request, answer and close while the body is being written. The write
        then fails, and the event loop forgets data that is still in the socket.
        """
        peer = self.transport.get_extra_info("socket")
        if peer is None:
            return  # uvloop's TLS has let go of it
        try:
            descriptor = peer.fileno()
            # Bounded by the socket's buffer: nobody writes into it any more.
            while self._receiver is not None and not self._ended:
                piece = os.read(descriptor, MAX_PIECE_BYTES)
                self._framing_bytes += len(piece)
                if not piece or not self._parse(piece):
                    return
        except OSError:
            return

    def connection_lost(self, exc: Exception | None) -> None:
        reset = isinstance(exc, (ConnectionResetError, BrokenPipeError))
        if reset and self._receiver is not None:
            self._read_what_is_left()
        self._parser = None
        receiver, self._receiver = self._receiver, None
        is_the_end = self._ended or (self._open_ended and exc is None)
        self.broken = receiver is not None and not is_the_end
        self._lost(self)
        if receiver is None:
            return
        if is_the_end:
            receiver.answer_ends()
        else:
            self.not_begun = reset and self._is_local and self._in_head and not self._framing_bytes
            receiver.answer_breaks()

    def pause_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.upstream_full()

    def resume_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.upstream_drained()

    # Called by the parser

    def on_message_begin(self) -> None:
        if self._ended:
            self.reusable = False
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        # Later fields are trailers, which are not used.
        if self._in_head:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        receiver = self._receiver
        if self._ended or receiver is None:
            return
        status = self._parser.get_status_code()
        self._interim = status < 200
        if self._interim:
            receiver.answer_interim(status, self._headers)
            return
        self._in_head = False
        bodiless = self._bodiless or status in (204, 304)
        length = 0 if bodiless else _body_length(self._headers)
        self._open_ended = length is None and not _is_chunked(self._headers)
        if not self._parser.should_keep_alive():
            self.reusable = False
        receiver.answer_begins(status, self._headers, length)
        if self._bodiless:
            # The parser does not know of the HEAD, and would wait for a body.
            self._ended = True
            self._parser = httptools.HttpResponseParser(self)

    def on_body(self, data: bytes) -> None:
        if self._ended:
            self.reusable = False
        elif self._receiver is not None:
            # Framing in the same piece as body data does not count.
            self._framing_bytes = -MAX_PIECE_BYTES
            self._receiver.answer_continues(data)

    def on_message_complete(self) -> None:
        if not self._interim:
            self._ended = True

    def _end(self) -> None:
        receiver, self._receiver = self._receiver, None
        # After an early answer, the rest of the body would be taken for the next request.
        if self.reusable and self._unsent <= 0:
            self.resume()
            self._freed(self)
        else:
            self.transport.close()
        if receiver is not None:
            receiver.answer_ends()

    def _break(self) -> None:
        receiver, self._receiver = self._receiver, None
        self.transport.abort()
        if receiver is not None:
            receiver.answer_breaks()


def _body_length(headers: Headers) -> int | None:
    for name, value in headers:
        if name.lower() == b"content-length":
            return int(value)
    return None


def _is_chunked(headers: Headers) -> bool:
    return any(name.lower() == b"transfer-encoding" for name, _ in headers)
