"""One InvokeEndpointWithResponseStream request: an invocation whose answer comes in frames.

What a container answers, to a caller who gets it as it comes: each piece in a frame.
"""

from sagehen.gateway.admission.admission import Admission
from sagehen.gateway.admission.errors import STREAM_SHUT_DOWN, stream_broken, stream_timed_out
from sagehen.gateway.container.answer import ContainerAnswer
from sagehen.gateway.container.connection import Headers
from sagehen.gateway.invocation.invocation import Invocation
from sagehen.wire.event_stream import event, exception

__all__ = ["StreamedAnswer", "StreamedInvocation"]

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


class StreamedInvocation(Invocation):
    """Until the first byte it is as any other; then errors are frames."""

    is_streamed = True

    _answer: StreamedAnswer
    _late = False

    def expire(self) -> None:
        self._late = True
        super().expire()

    def shut_down(self) -> None:
        if self._exchange.begun:
            self._answer.fail(STREAM_SHUT_DOWN)
        super().shut_down()

    def _admission(self) -> Admission:
        return self._invoker.stream_admission

    def _new_answer(self) -> StreamedAnswer:
        return StreamedAnswer(self._exchange, self._admitted.variant.invoked_field)

    def _break_off(self) -> None:
        if self._exchange.done:
            return
        container = self._container
        if self._late:
            self._answer.break_off(stream_timed_out(container), "ModelInvocationTimeExceeded")
        else:
            self._answer.break_off(stream_broken(container), "StreamBroken")
