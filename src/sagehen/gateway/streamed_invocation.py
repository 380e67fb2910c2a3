"""One InvokeEndpointWithResponseStream request: an invocation whose answer comes in frames."""

from sagehen.gateway.admission import Admission
from sagehen.gateway.faults import STREAM_SHUT_DOWN, stream_broken, stream_timed_out
from sagehen.gateway.invocation import Invocation
from sagehen.gateway.streamed_answer import StreamedAnswer

__all__ = ["StreamedInvocation"]


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
