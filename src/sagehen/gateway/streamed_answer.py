"""What a container answers, to a caller who gets it as it comes: each piece in a frame."""

from sagehen.gateway.container_answer import ContainerAnswer
from sagehen.gateway.upstream import Headers
from sagehen.wire.event_stream import event, exception

__all__ = ["StreamedAnswer"]

_CONTENT_TYPE = b"Content-Type: application/vnd.amazon.eventstream\r\n"
_PASSED_ON = {
    b"content-type": b"X-Amzn-SageMaker-Content-Type",
    b"x-amzn-sagemaker-custom-attributes": b"X-Amzn-SageMaker-Custom-Attributes",
}


class StreamedAnswer(ContainerAnswer):
    """Passed on from its first byte; an error's is kept, as that of any answer."""

    __slots__ = ()

    passed_on = _PASSED_ON

    def begin(self, status: int, headers: Headers, length: int | None) -> None:
        # The head waits for the first byte: without one, there is still an error to answer.
        self.status = status
        self.headers = headers

    def add(self, data: bytes) -> None:
        if not self.is_success:
            super().add(data)
            return
        if not self.passing:
            self._begin_frames()
        self.size += len(data)
        self._exchange.continue_answer(event("PayloadPart", data))

    def give(self) -> None:
        if not self.passing:
            self._begin_frames()
        self._exchange.end_answer()

    def break_off(self, message: str, error_code: str) -> None:
        """End what has begun with an exception: clients take a mere end for the answer's own."""
        members = {"Message": message, "ErrorCode": error_code}
        self._exchange.continue_answer(exception("ModelStreamError", members))
        self._exchange.end_answer()

    def fail(self, message: str) -> None:
        """End what has begun, for a reason that is ours and not the model's."""
        self._exchange.continue_answer(exception("InternalStreamFailure", {"Message": message}))
        self._exchange.end_answer()

    def _begin_frames(self) -> None:
        self.passing = True
        self._exchange.begin_answer(200, _CONTENT_TYPE + self._head_fields(), None, bodiless=False)
