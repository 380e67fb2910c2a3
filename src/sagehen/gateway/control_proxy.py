"""Relays requests to control as they came."""

from sagehen.gateway.control_unavailable import answer_control_unavailable
from sagehen.http1.client import ClientConnection
from sagehen.http1.exchange import Exchange
from sagehen.http1.fields import STATUS_LINES, Headers, field_lines
from sagehen.http1.pool import Pool

__all__ = ["ControlProxy"]

_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""no SDK signs these"""

_NOT_FORWARDED = _HOP_BY_HOP | {b"content-length", b"date"}
_REQUEST_IDS = (b"x-amzn-requestid", b"x-amz-request-id")
"""S3 sends only the second"""

MAX_BUFFERED_BYTES = 16 * 1024
"""smaller answers are sent whole or not at all: boto3 takes an answer that breaks off after its
head for an empty success"""

MAX_REPEATED_BYTES = 16 * 1024
"""of a body that is kept until its answer begins"""


class ControlProxy:
    """Streams one request to control, and the answer back."""

    __slots__ = (
        "_buffer",
        "_buffered_head",
        "_chunked",
        "_exchange",
        "_pool",
        "_repeatable",
        "_sent_body",
        "_upstream",
    )

    def __init__(self, exchange: Exchange, pool: Pool) -> None:
        self._exchange = exchange
        self._pool = pool
        self._upstream: ClientConnection | None = None
        self._sent_body: list[bytes] = []
        """what came before the connection, and while `_repeatable` all that was sent"""
        self._repeatable = True
        """on another connection, once, while the body is small"""
        self._buffered_head: tuple[int, bytes, int] | None = None
        """status, fields and length of a buffered answer"""
        self._buffer: list[bytes] = []
        self._chunked = any(name.lower() == b"transfer-encoding" for name, _ in exchange.headers)

    # Called by the client's connection

    def begin(self) -> None:
        upstream = self._pool.take(self)
        if upstream is not None:
            self.connected(upstream)
        else:
            self._exchange.channel.hold()

    def body(self, data: bytes) -> None:
        if self._upstream is None or self._repeatable:
            self._sent_body.append(data)
        if self._upstream is not None:
            self._write_body(self._upstream, data)
            self._keep_only_small()

    def _write_body(self, upstream: ClientConnection, data: bytes) -> None:
        if self._chunked:
            upstream.write_all([b"%x\r\n" % len(data), data, b"\r\n"])
        else:
            upstream.write(data)

    def _keep_only_small(self) -> None:
        if not self._repeatable or sum(map(len, self._sent_body)) > MAX_REPEATED_BYTES:
            self._repeatable = False
            self._sent_body.clear()

    def whole(self) -> None:
        if self._upstream is not None and self._chunked:
            self._upstream.write(b"0\r\n\r\n")

    def client_full(self) -> None:
        if self._upstream is not None:
            self._upstream.pause()

    def client_drained(self) -> None:
        if self._upstream is not None:
            self._upstream.resume()

    def client_gone(self) -> None:
        if self._upstream is None:
            self._pool.forget(self)
        else:
            self._upstream.abandon()

    # Called by the pool

    def connected(self, upstream: ClientConnection) -> None:
        self._upstream = upstream
        upstream.begin(self, bodiless=self._exchange.method == b"HEAD")
        upstream.write(self._head())
        for part in self._sent_body:
            self._write_body(upstream, part)
        self._keep_only_small()
        if self._exchange.is_whole:
            self.whole()
        self._exchange.channel.release()

    def refused(self) -> None:
        self._answer_unavailable()

    # Called by the connection to control

    def answer_interim(self, status: int, headers: Headers) -> None:
        self._exchange.interim(STATUS_LINES[status] + field_lines(headers) + b"\r\n")

    def answer_begins(self, status: int, headers: Headers, length: int | None) -> None:
        exchange = self._exchange
        if not exchange.is_whole and self._upstream is not None:
            # The rest of the body would be taken for the next request.
            self._upstream.reusable = False
        bodiless = exchange.method == b"HEAD" or status in (204, 304)
        dropped = _NOT_FORWARDED - {b"content-length"} if bodiless else _NOT_FORWARDED
        fields = [field for field in headers if field[0].lower() not in dropped]
        if not any(name.lower() in _REQUEST_IDS for name, _ in fields):
            fields.append((b"x-amzn-RequestId", exchange.request_id))
        if length is not None and length <= MAX_BUFFERED_BYTES and not bodiless:
            self._buffered_head = (status, field_lines(fields), length)
        else:
            exchange.begin_answer(status, field_lines(fields), length, bodiless)

    def answer_continues(self, data: bytes) -> None:
        if self._buffered_head is not None:
            self._buffer.append(data)
        else:
            self._exchange.continue_answer(data)

    def answer_ends(self) -> None:
        self._upstream = None
        if self._buffered_head is not None:
            self._exchange.begin_answer(*self._buffered_head, bodiless=False)
            self._exchange.continue_answer(b"".join(self._buffer))
        self._exchange.channel.release()
        self._exchange.end_answer()

    def answer_breaks(self) -> None:
        upstream, self._upstream = self._upstream, None
        if self._exchange.begun:
            self._exchange.channel.abort()
        elif upstream is not None and upstream.not_begun and self._repeatable:
            # Control closed an idle connection at this moment, or was started again.
            self._repeatable = False
            self.begin()
        else:
            self._answer_unavailable()

    def upstream_full(self) -> None:
        self._exchange.channel.hold()

    def upstream_drained(self) -> None:
        self._exchange.channel.release()

    def _answer_unavailable(self) -> None:
        answer_control_unavailable(self._exchange, is_starting=not self._pool.has_connected)

    def _head(self) -> bytes:
        exchange = self._exchange
        fields = [field for field in exchange.headers if field[0].lower() not in _HOP_BY_HOP]
        if self._chunked:
            fields.append((b"Transfer-Encoding", b"chunked"))
        if exchange.legacy:
            # HTTP/1.0 comes from proxies without a Via header, not from clients.
            fields.append((b"Via", b"1.0 sagehen"))
        request_line = b"%b %b HTTP/1.1\r\n" % (exchange.method, exchange.target)
        return request_line + field_lines(fields) + b"\r\n"
