"""A container's answer on its way to the caller: buffered if small, streamed if large."""

from sagehen.gateway.admission.errors import MAX_ORIGINAL_MESSAGE_BYTES
from sagehen.http1.exchange import Exchange
from sagehen.http1.fields import Headers

__all__ = ["ContainerAnswer", "is_not_started"]

KEPT_BYTES = 256 * 1024
"""answers up to this are buffered, so that the container is free before the caller reads"""

_NOT_STARTED = b"x-sagehen-not-started"
_BY_MODEL = b"x-sagehen-by-model"
_WORKER_DIED = b"x-sagehen-worker-died"

_PASSED_ON = {
    b"content-type": b"Content-Type",
    b"x-amzn-sagemaker-custom-attributes": b"X-Amzn-SageMaker-Custom-Attributes",
}


class ContainerAnswer:
    """One attempt's answer; `fields` go before the container's."""

    __slots__ = ("_exchange", "_fields", "headers", "parts", "passing", "size", "status", "whole")

    passed_on = _PASSED_ON
    """names for the caller, by the container's header"""

    def __init__(self, exchange: Exchange, fields: bytes) -> None:
        self._exchange = exchange
        self._fields = fields
        self.size = 0
        """of the body so far"""
        self.status = 0
        self.headers: Headers = []
        self.parts: list[bytes] = []
        self.passing = False
        """the caller has the head: too late for an error"""
        self.whole = True
        """False: an error's body was cut"""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def begin(self, status: int, headers: Headers, length: int | None) -> None:
        self.status = status
        self.headers = headers
        if length is not None and length > KEPT_BYTES and self.is_success:
            self._pass_on(length)

    def add_fields(self, lines: bytes) -> None:
        self._fields += lines

    def add(self, data: bytes) -> None:
        if self.passing:
            self.size += len(data)
            self._exchange.continue_answer(data)
            return
        if not self.is_success and self.size + len(data) > MAX_ORIGINAL_MESSAGE_BYTES:
            data = data[: MAX_ORIGINAL_MESSAGE_BYTES - self.size]
            self.whole = False
        self.size += len(data)
        self.parts.append(data)
        if self.size > KEPT_BYTES:
            self._pass_on(None)

    def give(self) -> None:
        """Sends the rest of a successful answer."""
        if self.passing:
            self._exchange.end_answer()
        else:
            self._exchange.answer(200, self._head_fields(), self.body)

    @property
    def body(self) -> bytes:
        parts = self.parts
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def is_not_started(self) -> bool:
        """Whether another instance may be tried."""
        return is_not_started(self.status, self.headers)

    @property
    def is_by_model(self) -> bool:
        """Whether the model itself, not its server, chose the status."""
        return _has(self.headers, _BY_MODEL)

    @property
    def is_worker_death(self) -> bool:
        """Whether the process of the model's code ended with the request."""
        return _has(self.headers, _WORKER_DIED)

    def _pass_on(self, length: int | None) -> None:
        self.passing = True
        # Callers get 200 for any 2xx.
        self._exchange.begin_answer(200, self._head_fields(), length, bodiless=False)
        for part in self.parts:
            self._exchange.continue_answer(part)
        self.parts.clear()

    def _head_fields(self) -> bytes:
        fields = self._fields
        for name, value in self.headers:
            known = self.passed_on.get(name.lower())
            if known is not None:
                fields += b"%b: %b\r\n" % (known, value)
        return fields


def is_not_started(status: int, headers: Headers) -> bool:
    """Whether the container did not begin the request, and will not."""
    return status == 503 and _has(headers, _NOT_STARTED)


def _has(headers: Headers, field_name: bytes) -> bool:
    return any(name.lower() == field_name for name, _ in headers)
