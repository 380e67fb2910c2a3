"""One InvokeEndpointWithResponseStream request: an invocation whose answer comes in frames."""

from sagehen.gateway.admission import Admission
from sagehen.gateway.exchange import Exchange
from sagehen.gateway.faults import STREAM_BROKEN, STREAM_TIMED_OUT
from sagehen.gateway.invocation import Invocation
from sagehen.gateway.invoker import Invoker
from sagehen.gateway.streamed_answer import StreamedAnswer
from sagehen.gateway.upstream import Headers

__all__ = ["StreamedInvocation"]

_ACCEPT = b"x-amzn-sagemaker-accept"


class StreamedInvocation(Invocation):
    """Until the first byte it is as any other; then it has more time, and errors are frames."""

    __slots__ = ("_late",)

    is_streamed = True

    _answer: StreamedAnswer

    def __init__(self, exchange: Exchange, invoker: Invoker) -> None:
        super().__init__(exchange, invoker)
        self._late = False

    def answer_continues(self, data: bytes) -> None:
        begins = not self._exchange.begun
        super().answer_continues(data)
        if begins and self._exchange.begun:
            self._invoker.enter_stream(self)

    def expire(self) -> None:
        self._late = True
        super().expire()

    def _admission(self) -> Admission:
        return self._invoker.stream_admission

    def _container_headers(self) -> Headers:
        """The header `Accept` is what the SDK takes; the model's has a name of its own."""
        return [
            (b"Accept" if name.lower() == _ACCEPT else name, value)
            for name, value in self._exchange.headers
            if name.lower() != b"accept"
        ]

    def _new_answer(self) -> StreamedAnswer:
        return StreamedAnswer(self._exchange, self._admitted.variant.invoked_field)

    def _break_off(self) -> None:
        if self._late:
            self._answer.break_off(STREAM_TIMED_OUT, "ModelInvocationTimeExceeded")
        else:
            self._answer.break_off(STREAM_BROKEN, "StreamBroken")
