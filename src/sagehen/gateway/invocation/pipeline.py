"""An inference pipeline: each container's answer is the next one's request, buffered here; the last
answer goes to the invocation.

Its phases are drawn in phases.py.
"""

from sagehen.gateway.admission.admission import Admitted
from sagehen.gateway.client.limits import Limit
from sagehen.gateway.container.answer import ContainerAnswer
from sagehen.gateway.invocation.context import (
    BodyMemory,
    InvocationCallbacks,
    InvocationContext,
    RequestBody,
)
from sagehen.gateway.invocation.phases import (
    ANSWERED,
    CONNECTING,
    DONE,
    IDLE,
    RUN_MOVES,
    SENT,
    Phased,
)
from sagehen.gateway.metrics.request_metrics import RequestMetrics
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.http1.exchange import Exchange
from sagehen.http1.fields import Headers
from sagehen.link.upstream import Upstream, invoke_path

__all__ = ["PipelineRun", "StageAnswer"]

_CONTENT_TYPE = b"content-type"
_ACCEPT = b"accept"


class StageAnswer(ContainerAnswer):
    """Buffers a success as the next request's body."""

    __slots__ = ("next_body",)

    def __init__(self, exchange: Exchange, memory: BodyMemory) -> None:
        super().__init__(exchange, b"")
        self.next_body = RequestBody(memory)

    def begin(self, status: int, headers: Headers, length: int | None) -> None:
        self.status = status
        self.headers = headers

    def add(self, data: bytes) -> None:
        if self.is_success:
            self.next_body.add_unhashed(data)
        else:
            super().add(data)

    @property
    def content_type(self) -> bytes | None:
        for name, value in self.headers:
            if name.lower() == _CONTENT_TYPE:
                return value
        return None


class PipelineRun(Phased):
    """One request's way through an instance's containers.

    Only the last gets the caller's Accept header. The caller keeps `body`.
    """

    __slots__ = (
        "_admitted",
        "_answer",
        "_body",
        "_context",
        "_exchange",
        "_header_lines",
        "_index",
        "_instance",
        "_metrics",
        "_model_name",
        "_owner",
        "_sent_at",
        "_spent_seconds",
        "_stage",
        "_status",
        "_upstream",
        "_was_sent",
    )

    _moves = RUN_MOVES

    _upstream: Upstream
    """to the current container, while SENT"""

    def __init__(
        self,
        owner: InvocationCallbacks,
        exchange: Exchange,
        admitted: Admitted,
        body: RequestBody,
        metrics: RequestMetrics,
        context: InvocationContext,
        instance: RoutedInstance,
    ) -> None:
        self._owner = owner
        self._exchange = exchange
        self._context = context
        self._metrics = metrics
        self._admitted = admitted
        self._body = body
        self._instance = instance
        self.phase = IDLE
        self._model_name: str | None = None
        self._status = 0
        self._answer = StageAnswer(exchange, context.body_memory)
        """the current container's; unused for the last one's"""
        self._was_sent = False
        """to the current container"""
        self._sent_at = 0.0
        self._spent_seconds = 0.0
        """by earlier containers"""
        self._index = 0
        """of the current container"""
        self._stage = instance.stages[0]
        self._header_lines = _without(admitted.header_lines, _ACCEPT)
        """for the current container"""

    @property
    def hostname(self) -> str:
        return self._stage.hostname

    @property
    def has_begun(self) -> bool:
        """Whether a container has answered, so that no other instance can take over."""
        return self._index > 0

    @property
    def is_at_models(self) -> bool:
        return self._stage.multi_model

    def resume(self, model_name: str | None) -> None:
        """Sends to the current container.

        `model_name`: the loaded model, if a container holds many.
        """
        self._model_name = model_name
        upstream = self._stage.upstreams.take(self)
        if upstream is None:
            self._move(CONNECTING)
        else:
            self.connected(upstream)

    def count(self, status: int) -> None:
        """Counts the current container's status; 500 if it gave none."""
        counters = self._stage.counters
        counters.invocations += 1
        if 400 <= status < 500:
            counters.errors_4xx += 1
        elif status >= 500:
            counters.errors_5xx += 1
        if self._was_sent:
            counters.model_latency.recent.append(int(self._seconds_since_sent() * 1e6))

    def release(self) -> None:
        """Releases everything; stops calling the owner."""
        phase = self.phase
        self._move(DONE)
        if phase is SENT:
            self._upstream.abandon()
        elif phase is CONNECTING:
            self._stage.upstreams.forget(self)
        self._answer.next_body.drop()
        if self.has_begun:
            self._body.drop()
        # Breaks the reference cycle.
        del self._owner

    # Called by the connection pool

    def connected(self, upstream: Upstream) -> None:
        stage, body = self._stage, self._body
        self._move(SENT)
        self._upstream = upstream
        self._was_sent = True
        self._sent_at = self._metrics.send(self._instance.instance_id, self._spent_seconds)
        if self._is_at_last:
            self._owner.sent_to_last(upstream)
        else:
            self._answer = StageAnswer(self._exchange, self._context.body_memory)
        path = invoke_path(self._model_name if stage.multi_model else None)
        upstream.send(self, path, self._header_lines, body.parts, body.size)

    def refused(self) -> None:
        self._move(ANSWERED)
        self._owner.refused()

    # Called by the container's connection

    def answer_interim(self, status: int, headers: Headers) -> None: ...

    def answer_begins(self, status: int, headers: Headers, length: int | None) -> None:
        self._status = status
        if self._is_at_last:
            self._owner.answer_begins(status, headers, length)
            return
        self._answer.begin(status, headers, length)
        self._check_size(length or 0)

    def answer_continues(self, data: bytes) -> None:
        if self._is_at_last:
            self._owner.answer_continues(data)
            return
        self._answer.add(data)
        self._check_size(self._answer.next_body.size)

    def answer_ends(self) -> None:
        self._move(ANSWERED)
        is_success = 200 <= self._status < 300
        if is_success:
            self.count(self._status)
        if self._is_at_last:
            self._owner.answer_ends()
        elif is_success:
            self._go_to_next()
        else:
            self._owner.unsuccessful(self._answer)

    def answer_breaks(self) -> None:
        self._move(ANSWERED)
        if self._is_at_last:
            self._owner.answer_breaks()
        elif self._upstream.not_begun:
            self._owner.refused()
        else:
            self._owner.unanswered()

    def upstream_full(self) -> None: ...  # the body is complete

    def upstream_drained(self) -> None: ...

    @property
    def _is_at_last(self) -> bool:
        return self._index == len(self._instance.stages) - 1

    def _seconds_since_sent(self) -> float:
        return self._context.monotonic() - self._sent_at

    def _check_size(self, size: int) -> None:
        limit = self._context.limits.stage_bytes
        if size <= limit or not 200 <= self._status < 300:
            return
        self._context.limit_hits[Limit.PIPELINE_BODY] += 1
        hostnames = (self.hostname, self._instance.stages[self._index + 1].hostname)
        name = self._admitted.endpoint.name
        errors = self._context.errors
        error = errors.too_large_between(name, hostnames, self._status, size, limit)
        self._owner.fail_by_model(500, error)

    def _go_to_next(self) -> None:
        if self.has_begun:
            self._body.drop()
        answer = self._answer
        self._body = answer.next_body
        self._spent_seconds += self._seconds_since_sent()
        self._was_sent = False
        self._index += 1
        self._stage = self._instance.stages[self._index]
        lines = _without(
            self._admitted.header_lines if self._is_at_last else self._header_lines, _CONTENT_TYPE
        )
        if answer.content_type is not None:
            lines += b"Content-Type: %b\r\n" % answer.content_type
        self._header_lines = lines
        self.resume(self._model_name)


def _without(lines: bytes, name: bytes) -> bytes:
    """`name` is in lower case."""
    others = [line for line in lines.split(b"\r\n") if line.partition(b":")[0].lower() != name]
    return b"\r\n".join(others)
