"""What a container answers, on its way to the caller: kept if small, passed on if large."""

from sagehen.gateway.admission.errors import LONGEST_ORIGINAL_MESSAGE_BYTES
from sagehen.gateway.client.exchange import Exchange
from sagehen.gateway.container.connection import Headers

__all__ = ["ContainerAnswer", "is_not_started"]

KEPT_BYTES = 256 * 1024
"""An answer up to this is written at once, and its container is free before it is."""

_NOT_STARTED = b"x-sagehen-not-started"
_BY_MODEL = b"x-sagehen-by-model"

_PASSED_ON = {
    b"content-type": b"Content-Type",
    b"x-amzn-sagemaker-custom-attributes": b"X-Amzn-SageMaker-Custom-Attributes",
}


class ContainerAnswer:
    """The answer to one sending of a request; `fields` are lines that go before the container's."""

    __slots__ = ("_exchange", "_fields", "headers", "parts", "passing", "size", "status", "whole")

    passed_on = _PASSED_ON
    """The container's headers that the caller gets, under which names."""

    def __init__(self, exchange: Exchange, fields: bytes) -> None:
        self._exchange = exchange
        self._fields = fields
        self.size = 0
        """Bytes of its body so far."""
        self.status = 0
        self.headers: Headers = []
        self.parts: list[bytes] = []
        self.passing = False
        """Its head is with the caller already: what happens now cannot become an error answer."""
        self.whole = True
        """Nothing of an error's body was dropped."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def begin(self, status: int, headers: Headers, length: int | None) -> None:
        self.status = status
        self.headers = headers
        if length is not None and length > KEPT_BYTES and self.is_success:
            self._pass_on(length)

    def add_fields(self, lines: bytes) -> None:
        """More lines for the head, before it is written."""
        self._fields += lines

    def add(self, data: bytes) -> None:
        if self.passing:
            self.size += len(data)
            self._exchange.continue_answer(data)
            return
        if not self.is_success and self.size + len(data) > LONGEST_ORIGINAL_MESSAGE_BYTES:
            data = data[: LONGEST_ORIGINAL_MESSAGE_BYTES - self.size]
            self.whole = False
        self.size += len(data)
        self.parts.append(data)
        if self.size > KEPT_BYTES:
            self._pass_on(None)

    def give(self) -> None:
        """All has come, and it is a success: the caller gets the rest of it."""
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
        """The container says that it did not begin: another may be asked."""
        return is_not_started(self.status, self.headers)

    @property
    def is_by_model(self) -> bool:
        """The model itself chose the status, not the server that holds it."""
        return _has(self.headers, _BY_MODEL)

    def _pass_on(self, length: int | None) -> None:
        self.passing = True
        # Any success is 200 to the caller, whatever 2xx the container chose.
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
    """Whether an answer says that its container has not begun the request, and will not."""
    return status == 503 and _has(headers, _NOT_STARTED)


def _has(headers: Headers, wanted: bytes) -> bool:
    return any(name.lower() == wanted for name, _ in headers)
