"""Routes requests: handles invocations, relays all others to control."""

from urllib.parse import unquote_to_bytes

from sagehen.gateway.admission.errors import RuntimeRefusal
from sagehen.gateway.admission.params import read_target
from sagehen.gateway.client.exchange import Exchange, Handler, field_lines, status_line
from sagehen.gateway.container.connection import Headers, Upstream
from sagehen.gateway.container.pool import Pool
from sagehen.gateway.control_unavailable import control_is_away
from sagehen.gateway.invocation.invocation import Invocation
from sagehen.gateway.invocation.invoker import Invoker
from sagehen.gateway.invocation.streamed import StreamedInvocation
from sagehen.wire.errors import AwsError

__all__ = ["RequestDispatcher", "Tunnel"]

_PER_CONNECTION = frozenset(
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
"""hop-by-hop headers; no SDK signs these"""

_SET_BY_US = _PER_CONNECTION | {b"content-length", b"date"}
_REQUEST_IDS = (b"x-amzn-requestid", b"x-amz-request-id")
"""S3 sends the second one only"""

_SMALL_BYTES = 16 * 1024
"""smaller answers are sent whole or not at all: boto3 takes one that breaks off after its head for
an empty success"""


class Tunnel:
    """Streams one request to control, and the answer back."""

    __slots__ = ("_chunked", "_early", "_exchange", "_pool", "_small", "_small_head", "_upstream")

    def __init__(self, exchange: Exchange, pool: Pool) -> None:
        self._exchange = exchange
        self._pool = pool
        self._upstream: Upstream | None = None
        self._early: list[bytes] = []
        self._small_head: tuple[int, bytes, int] | None = None
        """status, fields and length of a buffered answer"""
        self._small: list[bytes] = []
        self._chunked = any(name.lower() == b"transfer-encoding" for name, _ in exchange.headers)

    # Called by the client's connection

    def begin(self) -> None:
        upstream = self._pool.take(self)
        if upstream is not None:
            self.connected(upstream)
        else:
            self._exchange.channel.hold()

    def body(self, data: bytes) -> None:
        if self._upstream is None:
            self._early.append(data)
        elif self._chunked:
            self._upstream.write_all([b"%x\r\n" % len(data), data, b"\r\n"])
        else:
            self._upstream.write(data)

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

    def connected(self, upstream: Upstream) -> None:
        self._upstream = upstream
        upstream.begin(self, bodiless=self._exchange.method == b"HEAD")
        upstream.write(self._head())
        for part in self._early:
            self.body(part)
        self._early.clear()
        if self._exchange.is_whole:
            self.whole()
        self._exchange.channel.release()

    def refused(self) -> None:
        control_is_away(self._exchange)

    # Called by the connection to control

    def answer_interim(self, status: int, headers: Headers) -> None:
        self._exchange.interim(status_line(status) + field_lines(headers) + b"\r\n")

    def answer_begins(self, status: int, headers: Headers, length: int | None) -> None:
        exchange = self._exchange
        if not exchange.is_whole and self._upstream is not None:
            # The rest of the body would be taken for the next request.
            self._upstream.reusable = False
        bodiless = exchange.method == b"HEAD" or status in (204, 304)
        dropped = _SET_BY_US - {b"content-length"} if bodiless else _SET_BY_US
        fields = [field for field in headers if field[0].lower() not in dropped]
        if not any(name.lower() in _REQUEST_IDS for name, _ in fields):
            fields.append((b"x-amzn-RequestId", exchange.request_id))
        if length is not None and length <= _SMALL_BYTES and not bodiless:
            self._small_head = (status, field_lines(fields), length)
        else:
            exchange.begin_answer(status, field_lines(fields), length, bodiless)

    def answer_continues(self, data: bytes) -> None:
        if self._small_head is not None:
            self._small.append(data)
        else:
            self._exchange.continue_answer(data)

    def answer_ends(self) -> None:
        self._upstream = None
        if self._small_head is not None:
            self._exchange.begin_answer(*self._small_head, bodiless=False)
            self._exchange.continue_answer(b"".join(self._small))
        self._exchange.channel.release()
        self._exchange.end_answer()

    def answer_breaks(self) -> None:
        self._upstream = None
        if self._exchange.begun:
            self._exchange.channel.abort()
        else:
            control_is_away(self._exchange)

    def upstream_full(self) -> None:
        self._exchange.channel.hold()

    def upstream_drained(self) -> None:
        self._exchange.channel.release()

    def _head(self) -> bytes:
        exchange = self._exchange
        fields = [field for field in exchange.headers if field[0].lower() not in _PER_CONNECTION]
        if self._chunked:
            fields.append((b"Transfer-Encoding", b"chunked"))
        if exchange.legacy:
            # HTTP/1.0 comes from proxies without a Via header, not from clients.
            fields.append((b"Via", b"1.0 sagehen"))
        request_line = b"%b %b HTTP/1.1\r\n" % (exchange.method, exchange.target)
        return request_line + field_lines(fields) + b"\r\n"


INTERNAL = b"/_sagehen/internal"
"""calls between our processes, closed to clients"""


class RequestDispatcher:
    """Chooses each request's handler; all but invocations go to `control`."""

    def __init__(self, invoker: Invoker, control: Pool) -> None:
        self._invoker = invoker
        self._control = control

    def __call__(self, exchange: Exchange) -> Handler:
        target = read_target(exchange.target)
        if target.endpoint and exchange.method == b"POST":
            # Objects of a bucket `endpoints` may have such paths; S3 posts with a query.
            if target.action == "invocations" and "upload" not in target.query:
                return Invocation(exchange, self._invoker)
            if target.action == "invocations-response-stream" and "upload" not in target.query:
                return StreamedInvocation(exchange, self._invoker)
        # Decoded, as control decodes paths.
        if unquote_to_bytes(exchange.target).startswith(INTERNAL):
            return RuntimeRefusal(exchange, AwsError("NotFound", "There is nothing here.", 404))
        return Tunnel(exchange, self._control)
