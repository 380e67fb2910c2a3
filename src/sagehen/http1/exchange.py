"""One HTTP request that a server received, and how to answer it."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from sagehen.http1.fields import STATUS_LINES, Headers

__all__ = ["CONTINUE", "JOINED_BYTES", "Channel", "Exchange", "Handler", "RequestFault"]

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

JOINED_BYTES = 64 * 1024
"""smaller bodies are copied behind their head to save a system call"""

_NO_FIELDS: dict[str, str] = {}
"""shared, so never written to"""
_BODY_FIELDS = ("content-length", "transfer-encoding")


class RequestFault(NamedTuple):
    """Why a request is refused, and the status of the answer."""

    message: str
    status: int = 400


class Channel(Protocol):
    """The client's connection, as an exchange uses it."""

    @property
    def date_line(self) -> bytes: ...

    @property
    def draining(self) -> bool:
        """This answer must be the last of its connection."""

    @property
    def is_blocked(self) -> bool:
        """The client does not read as fast as it is answered."""

    def is_current(self, exchange: "Exchange") -> bool:
        """Whether it may be answered now: all earlier ones are, and the connection is open."""

    def write(self, data: bytes) -> None: ...

    def write_all(self, parts: list[bytes]) -> None: ...

    def finished(self, exchange: "Exchange") -> None:
        """The next request may be answered."""

    def abort(self) -> None:
        """Cuts the client off: a partial answer must not look complete."""

    def break_off(self) -> None:
        """Closes the connection behind the part of an answer that was written."""

    def hold(self) -> None:
        """Stops reading, as the handler cannot take more of the body."""

    def release(self) -> None: ...


class Handler(Protocol):
    """Answers one request; `begin` is called first.

    Where a connection begins several requests at once, answers wait until `Channel.is_current`.
    """

    def begin(self) -> None:
        """The head was received."""

    def body(self, data: bytes) -> None: ...

    def whole(self) -> None:
        """The body is complete."""

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
    fields: dict[str, str] = _NO_FIELDS
    """headers by lower-case name"""
    raw_fields: Mapping[bytes, bytes] | None = None
    """`fields` as bytes, if the server needs them"""
    early: list[bytes] | None = None
    """body received before the request began"""
    keep_alive = True
    legacy = False
    """HTTP/1.0: no chunks; keep-alive only on request"""
    fault: RequestFault | None = None
    """the request is refused"""
    is_whole = False
    handler: Handler | None = None
    begun = False
    """the final head is written"""
    closes = False
    done = False
    request_id = b""
    id_line = b""
    """its header line, for `answer`"""
    _chunked = False

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.headers: Headers = []

    @property
    def has_body(self) -> bool:
        """True even for an empty body."""
        return any(name in self.fields for name in _BODY_FIELDS)

    def continue_if_expected(self) -> None:
        """Asks for the body, if the client waits to be asked (RFC 9110, 10.1.1)."""
        if "expect" in self.fields and self.fields["expect"].lower() == "100-continue":
            self.interim(CONTINUE)

    def answer(self, status: int, fields: bytes, body: bytes) -> None:
        """Adds request id and length to `fields`, which are lines."""
        length = len(body)
        lines = (fields, self.id_line, b"Content-Length: %d\r\n" % length)
        if self.method == b"HEAD":
            self.channel.write(self._head(status, lines))
        elif length <= JOINED_BYTES:
            self.channel.write(self._head(status, lines, body))
        else:
            self.channel.write_all([self._head(status, lines), body])
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
        self.channel.write(self._head(status, (fields, framing)))

    def continue_answer(self, data: bytes) -> None:
        if self._chunked:
            self.channel.write_all([b"%x\r\n" % len(data), data, b"\r\n"])
        else:
            self.channel.write(data)

    def end_answer(self) -> None:
        if self._chunked:
            self.channel.write(b"0\r\n\r\n")
        self.channel.finished(self)

    def _head(self, status: int, lines: tuple[bytes, ...], body: bytes = b"") -> bytes:
        """Returns the head, and `body` behind it."""
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
        return b"".join((STATUS_LINES[status], *lines, channel.date_line, ending, body))
