"""Answers 503 as the service that the client calls would, while control is down or the gateway is
full."""

from xml.sax.saxutils import escape

import msgspec

from sagehen.http1.exchange import Exchange

__all__ = ["ControlUnavailable", "answer_control_unavailable", "answer_leader_unavailable"]

MESSAGE = (
    "The control process does not answer now; it is started again by itself. Try again in a "
    "moment. If it had begun this request, the request may or may not have been carried out."
)

STARTING_MESSAGE = "This server is starting, and its control process is not ready yet. Try again."

LEADER_MESSAGE = (
    "The server that serves the endpoints does not answer now; another takes over in a moment. Try "
    "again. If it had begun this request, the model may or may not have been invoked."
)

_CODE = "ServiceUnavailable"
_S3_CONTENT_TYPE = b"application/xml"
"""errors of S3 alone have this one"""


def answer_control_unavailable(exchange: Exchange, *, is_starting: bool = False) -> None:
    """`is_starting`: this gateway has never reached control."""
    exchange.channel.release()
    _answer_unavailable(exchange, STARTING_MESSAGE if is_starting else MESSAGE)


def answer_leader_unavailable(exchange: Exchange) -> None:
    exchange.channel.release()
    _answer_unavailable(exchange, LEADER_MESSAGE)


class ControlUnavailable:
    """A handler that answers 503 without waiting for the body."""

    def __init__(self, exchange: Exchange, message: str) -> None:
        self._exchange = exchange
        self._message = message

    def begin(self) -> None:
        if not self._exchange.has_body:
            self._exchange.is_whole = True
        _answer_unavailable(self._exchange, self._message)

    def body(self, data: bytes) -> None: ...

    def whole(self) -> None: ...

    def client_full(self) -> None: ...

    def client_drained(self) -> None: ...

    def client_gone(self) -> None: ...


def _answer_unavailable(exchange: Exchange, message: str) -> None:
    """SDKs retry a 503 by themselves."""
    content_type, body = _error_of_service(exchange, message)
    fields = b"Content-Type: %b\r\nx-amzn-ErrorType: %b\r\nRetry-After: 1\r\n"
    if content_type == _S3_CONTENT_TYPE:
        exchange.id_line = b"x-amz-request-id: %b\r\n" % exchange.request_id
    exchange.answer(503, fields % (content_type, _CODE.encode()), body)


def _error_of_service(exchange: Exchange, message: str) -> tuple[bytes, bytes]:
    """Returns the content type and the body that clients of the service expect."""
    headers = {name.lower(): value for name, value in exchange.headers}
    request_id = exchange.request_id.decode()
    if b"x-amz-target" in headers:
        body = {"__type": _CODE, "message": message}
        return headers.get(b"content-type", b"application/x-amz-json-1.1"), msgspec.json.encode(
            body
        )
    if exchange.target.startswith((b"/endpoints/", b"/_sagehen/")):
        return b"application/json", msgspec.json.encode({"Message": message})
    error = f"<Code>{_CODE}</Code><Message>{escape(message)}</Message>"
    if headers.get(b"content-type", b"").startswith(b"application/x-www-form-urlencoded"):
        return b"text/xml", (
            f"<ErrorResponse><Error><Type>Receiver</Type>{error}</Error>"
            f"<RequestId>{request_id}</RequestId></ErrorResponse>"
        ).encode()
    return _S3_CONTENT_TYPE, (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error>{error}<RequestId>{request_id}</RequestId></Error>"
    ).encode()
