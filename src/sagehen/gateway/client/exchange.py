"""One request on a client's connection, and the way to answer it.

The bytes of an answer's head.
"""

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
    """Header fields as they are sent, in the order and the case given."""
    return b"".join([b"%b: %b\r\n" % field for field in fields])


def date_line(now: float) -> bytes:
    """The Date header's line for `now`, in seconds since the epoch."""
    return b"Date: %b\r\n" % formatdate(now, usegmt=True).encode()


JOINED_BYTES = 64 * 1024
"""A body up to this is copied behind its head, for one system call instead of two."""

_BODY_FIELDS = ("content-length", "transfer-encoding")


class AnswerChannel(Protocol):
    """The client's connection, as an exchange uses it."""

    @property
    def date_line(self) -> bytes:
        """The Date header's line, of about now."""

    @property
    def draining(self) -> bool:
        """Every answer is to be the last of its connection."""

    def write(self, data: bytes) -> None: ...

    def write_all(self, parts: list[bytes]) -> None: ...

    def finished(self, exchange: "Exchange") -> None:
        """The answer is written; the next request may be taken up."""

    def abort(self) -> None:
        """Cut the client off: what it has got of an answer must not look whole."""

    def hold(self) -> None:
        """Read no more of the body until `release`."""

    def release(self) -> None: ...


class Handler(Protocol):
    """Answers one request. Called by the client's connection; `begin` comes first."""

    def begin(self) -> None:
        """The head is here, and it is this request's turn."""

    def body(self, data: bytes) -> None: ...

    def whole(self) -> None:
        """The body is all here."""

    def client_full(self) -> None:
        """The client reads more slowly than it is sent to; pause until `client_drained`."""

    def client_drained(self) -> None: ...

    def client_gone(self) -> None:
        """Nobody waits for an answer any more: let go of all that is held. Nothing else comes."""


class Exchange:
    """One request; `channel` is where its answer goes."""

    # What most requests never change stands here, not in each of them.
    method = b""
    target = b""
    """Path and query as they were sent."""
    keep_alive = True
    legacy = False
    """HTTP/1.0: knows neither chunks nor kept connections, unless it asks for them."""
    refusal: AwsError | None = None
    """Why it is not even looked at."""
    is_whole = False
    handler: Handler | None = None
    begun = False
    """The head of the final answer is written."""
    closes = False
    """The connection ends with this answer."""
    done = False
    _chunked = False

    def __init__(self, channel: AnswerChannel, request_id: bytes) -> None:
        self.channel = channel
        self.request_id = request_id
        self.headers: list[tuple[bytes, bytes]] = []
        self.fields: dict[str, str] = {}
        """The headers, when all are here, by their names in lower case."""
        self.early: list[bytes] = []
        """What came of the body before it was this request's turn."""

    @property
    def has_body(self) -> bool:
        """Its head speaks of a body, be it an empty one."""
        return any(name in self.fields for name in _BODY_FIELDS)

    def answer(
        self, status: int, fields: bytes, body: bytes, id_field: bytes = b"x-amzn-RequestId"
    ) -> None:
        """A whole answer at once. `fields` are lines; length and request id are added."""
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
        """A 1xx answer, whole; HTTP/1.0 has none."""
        if not self.legacy:
            self.channel.write(head)

    def begin_answer(self, status: int, fields: bytes, length: int | None, bodiless: bool) -> None:
        """The head of an answer whose body follows in parts.

        `length`: of the body where it is known; chunks are used where it is not. `bodiless`: none
        follows, whatever `fields` say of it (HEAD, 204, 304); the caller then gives its length
        in `fields`.
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
        # With a body still under way, what comes next on the connection cannot be told from it.
        self.closes = not self.keep_alive or not self.is_whole or channel.draining
        if self.closes:
            ending = b"Connection: close\r\n\r\n"
        elif self.legacy:
            ending = b"Connection: keep-alive\r\n\r\n"
        else:
            ending = b"\r\n"
        return b"".join((status_line(status), fields, channel.date_line, ending))
