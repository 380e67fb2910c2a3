"""InvokeEndpointWithResponseStream: the answer is sent in event-stream frames as it arrives."""

from sagehen.gateway.admission.admission import Admission
from sagehen.gateway.admission.errors import STREAM_SHUT_DOWN, stream_broken, stream_timed_out
from sagehen.gateway.container.answer import ContainerAnswer
from sagehen.gateway.invocation.invocation import Invocation
from sagehen.http1.fields import Headers
from sagehen.wire.event_stream import event, exception

__all__ = ["StreamedAnswer", "StreamedInvocation"]

_CONTENT_TYPE = b"Content-Type: application/vnd.amazon.eventstream\r\n"
_RENAMED = {
    b"content-type": b"X-Amzn-SageMaker-Content-Type",
    b"x-amzn-sagemaker-custom-attributes": b"X-Amzn-SageMaker-Custom-Attributes",
}


class StreamedAnswer(ContainerAnswer):
    """Streams a success from its first byte; buffers errors."""

    __slots__ = ()

    passed_on = _RENAMED

    def begin(self, status: int, headers: Headers, length: int | None) -> None:
        # The head waits for the first byte: until then an error can be answered.
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
        """Clients would take a mere end for a complete answer."""
        members = {"Message": message, "ErrorCode": error_code}
        self._exchange.continue_answer(exception("ModelStreamError", members))
        self._exchange.end_answer()

    def fail(self, message: str) -> None:
        """Ends the stream for a reason that is not the model's fault."""
        self._exchange.continue_answer(exception("InternalStreamFailure", {"Message": message}))
        self._exchange.end_answer()

    def _begin_frames(self) -> None:
        self.passing = True
        self._exchange.begin_answer(200, _CONTENT_TYPE + self._head_fields(), None, bodiless=False)


class StreamedInvocation(Invocation):
    """Reports errors in frames once its answer has begun."""

    is_streamed = True

    _answer: StreamedAnswer
    _timed_out = False

    def expire(self) -> None:
        self._timed_out = True
        super().expire()

    def shut_down(self) -> None:
        if self._exchange.begun:
            self._answer.fail(STREAM_SHUT_DOWN)
        super().shut_down()

    def _admission(self) -> Admission:
        return self._context.stream_admission

    def _new_answer(self) -> StreamedAnswer:
        return StreamedAnswer(self._exchange, self._admitted.variant.invoked_field)

    def _break_off(self) -> None:
        if self._exchange.done:
            return
        container = self._container
        if self._timed_out:
            self._answer.break_off(stream_timed_out(container), "ModelInvocationTimeExceeded")
        else:
            self._answer.break_off(stream_broken(container), "StreamBroken")
