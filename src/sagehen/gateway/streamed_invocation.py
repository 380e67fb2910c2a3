"""One InvokeEndpointWithResponseStream request: an invocation whose answer comes in frames."""

from sagehen.gateway.admission import Admission
from sagehen.gateway.faults import STREAM_SHUT_DOWN, stream_broken, stream_timed_out
from sagehen.gateway.invocation import Invocation
from sagehen.gateway.streamed_answer import StreamedAnswer
from sagehen.gateway.upstream import Headers

__all__ = ["StreamedInvocation", "container_headers"]

_ACCEPT = b"x-amzn-sagemaker-accept"


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


def container_headers(headers: Headers) -> Headers:
    """The header `Accept` is what the SDK takes; the model's has a name of its own."""
    return [
        (b"Accept" if name.lower() == _ACCEPT else name, value)
        for name, value in headers
        if name.lower() != b"accept"
    ]
