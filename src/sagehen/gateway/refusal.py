"""Answers a request with an error and nothing else."""

from sagehen.gateway.exchange import Exchange
from sagehen.gateway.faults import error_body
from sagehen.wire.faults import AwsError

__all__ = ["Refusal", "answer_error"]


def answer_error(exchange: Exchange, error: AwsError) -> None:
    """In the form that the runtime's clients read: the code in a header, the rest as JSON."""
    status = error.status or 400
    fields = b"x-amzn-ErrorType: %b\r\nContent-Type: application/json\r\n" % error.code.encode()
    if status == 503:
        fields += b"Retry-After: 1\r\n"
    exchange.answer(status, fields, error_body(error))


class Refusal:
    """A handler that only refuses; the body is not waited for."""

    def __init__(self, exchange: Exchange, error: AwsError) -> None:
        self._exchange = exchange
        self._error = error

    def begin(self) -> None:
        if not self._exchange.has_body and not self._exchange.refusal:
            # So that the connection can be kept.
            self._exchange.is_whole = True
        answer_error(self._exchange, self._error)

    def body(self, data: bytes) -> None: ...

    def whole(self) -> None: ...

    def client_full(self) -> None: ...

    def client_drained(self) -> None: ...

    def client_gone(self) -> None: ...
