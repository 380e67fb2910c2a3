"""One HTTP request on a client's connection, and how to answer it."""

from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol

from sagehen.wire.errors import AwsError

__all__ = [
    "CONTINUE",
    "AnswerChannel",
    "Exchange",
    "Handler",
    "date_line",
    "field_lines",
    "status_line",
]

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}


def status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d Status\r\n" % status


def field_lines(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % field for field in fields])


def date_line(now: float) -> bytes:
    """`now`: seconds since the epoch."""
    return b"Date: %b\r\n" % formatdate(now, usegmt=True).encode()


JOINED_BYTES = 64 * 1024
"""smaller bodies are copied behind their head to save a system call"""

_BODY_FIELDS = ("content-length", "transfer-encoding")


class AnswerChannel(Protocol):
    """The client's connection, as an exchange uses it."""

    @property
    def date_line(self) -> bytes: ...

    @property
    def draining(self) -> bool:
        """Every answer must be the last of its connection."""

    def write(self, data: bytes) -> None: ...

    def write_all(self, parts: list[bytes]) -> None: ...

    def finished(self, exchange: "Exchange") -> None:
        """The next request may start."""

    def abort(self) -> None:
        """Cuts the client off: a partial answer must not look complete."""

    def hold(self) -> None: ...

    def release(self) -> None: ...


class Handler(Protocol):
    """Answers one request; `begin` is called first."""

    def begin(self) -> None:
        """The head is here and earlier requests are answered."""

    def body(self, data: bytes) -> None: ...

    def whole(self) -> None: ...

    def client_full(self) -> None:
        """Pause until `client_drained`."""

    def client_drained(self) -> None: ...

    def client_gone(self) -> None:
        """The client has left: release everything. This is the last call."""


class Exchange:
    """One request; its answer goes to `channel`."""

    # Defaults live on the class, as most requests never change them.
    method = b""
    target = b""
    """path and query as sent"""
    keep_alive = True
    legacy = False
    """HTTP/1.0: no chunks; keep-alive only on request"""
    refusal: AwsError | None = None
    """the head is rejected"""
    is_whole = False
    handler: Handler | None = None
    begun = False
    """the final head is written"""
    closes = False
    done = False
    _chunked = False

    def __init__(self, channel: AnswerChannel, request_id: bytes) -> None:
        self.channel = channel
        self.request_id = request_id
        self.headers: list[tuple[bytes, bytes]] = []
        self.fields: dict[str, str] = {}
        """headers by lower-case name"""
        self.early: list[bytes] = []
        """body received before the request started"""

    @property
    def has_body(self) -> bool:
        """True even for an empty body."""
        return any(name in self.fields for name in _BODY_FIELDS)

    def answer(
        self, status: int, fields: bytes, body: bytes, id_field: bytes = b"x-amzn-RequestId"
    ) -> None:
        """Adds length and request id to `fields`, which are lines."""
        head = self._head(
            status,
            b"%b%b: %b\r\nContent-Length: %d\r\n" % (fields, id_field, self.request_id, len(body)),
        )
        if self.method == b"HEAD":
            self.channel.write(head)
        elif len(body) <= JOINED_BYTES:
            self.channel.write(head + body)
        else:
            self.channel.write_all([head, body])
        self.channel.finished(self)

    def interim(self, head: bytes) -> None:
        """HTTP/1.0 has no interim answers."""
        if not self.legacy:
            self.channel.write(head)

    def begin_answer(self, status: int, fields: bytes, length: int | None, bodiless: bool) -> None:
        """Sends the head; the body follows in parts.

        `length`: None sends chunks. `bodiless`: no body follows (HEAD, 204, 304); the caller
        puts any length into `fields`.
        """
        if bodiless:
            framing = b""
        elif length is not None:
            framing = b"Content-Length: %d\r\n" % length
        elif self.legacy:
            self.keep_alive = False
            framing = b""
        else:
            self._chunked = True
            framing = b"Transfer-Encoding: chunked\r\n"
        self.channel.write(self._head(status, fields + framing))

    def continue_answer(self, data: bytes) -> None:
        if self._chunked:
            self.channel.write_all([b"%x\r\n" % len(data), data, b"\r\n"])
        else:
            self.channel.write(data)

    def end_answer(self) -> None:
        if self._chunked:
            self.channel.write(b"0\r\n\r\n")
        self.channel.finished(self)

    def _head(self, status: int, fields: bytes) -> bytes:
        channel = self.channel
        self.begun = True
        # While a body is under way, the next request cannot be told from it.
        self.closes = not self.keep_alive or not self.is_whole or channel.draining
        if self.closes:
            ending = b"Connection: close\r\n\r\n"
        elif self.legacy:
            ending = b"Connection: keep-alive\r\n\r\n"
        else:
            ending = b"\r\n"
        return b"".join((status_line(status), fields, channel.date_line, ending))
