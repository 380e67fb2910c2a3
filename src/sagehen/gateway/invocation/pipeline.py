"""An inference pipeline: each container's answer is the next one's request, buffered here; the last
answer goes to the invocation."""

from typing import Protocol

from sagehen.gateway.admission.admission import Admitted
from sagehen.gateway.admission.params import container_head
from sagehen.gateway.client.exchange import Exchange
from sagehen.gateway.client.limits import Limit
from sagehen.gateway.container.answer import ContainerAnswer
from sagehen.gateway.container.connection import Headers, Receiver, Upstream
from sagehen.gateway.invocation.invoker import Body, Held, Invoker
from sagehen.gateway.metrics.request_metrics import Account
from sagehen.gateway.routing.instance import RoutedInstance, Stage
from sagehen.wire.errors import AwsError

__all__ = ["Passage", "Passenger"]

_CONTENT_TYPE = b"content-type"
_ACCEPT = b"accept"


class Passenger(Receiver, Protocol):
    """The invocation, which receives the last container's answer."""

    def expect(self, upstream: Upstream) -> None: ...

    def refused(self) -> None:
        """The current container provably did not begin."""

    def unsuccessful(self, answer: ContainerAnswer) -> None: ...

    def unanswered(self) -> None:
        """The current container was lost."""

    def fail_by_model(self, status: int, error: AwsError) -> None:
        """`status`: what the failure counts as."""


class StageAnswer(ContainerAnswer):
    """Buffers a success as the next request's body."""

    __slots__ = ("kept",)

    def __init__(self, exchange: Exchange, held: Held) -> None:
        super().__init__(exchange, b"")
        self.kept = Body(held)

    def begin(self, status: int, headers: Headers, length: int | None) -> None:
        self.status = status
        self.headers = headers

    def add(self, data: bytes) -> None:
        if self.is_success:
            self.kept.keep(data)
        else:
            super().add(data)

    @property
    def content_type(self) -> bytes | None:
        for name, value in self.headers:
            if name.lower() == _CONTENT_TYPE:
                return value
        return None


class Passage:
    """One request's way through an instance's containers.

    Only the last gets the caller's Accept header. The caller keeps `body`.
    """

    __slots__ = (
        "_account",
        "_admitted",
        "_answer",
        "_body",
        "_exchange",
        "_instance",
        "_invoker",
        "_lines",
        "_model_name",
        "_owner",
        "_sent_at",
        "_spent_seconds",
        "_status",
        "_upstream",
        "at",
        "hostname",
    )

    def __init__(
        self,
        owner: Passenger,
        exchange: Exchange,
        admitted: Admitted,
        body: Body,
        account: Account,
        invoker: Invoker,
    ) -> None:
        self._owner = owner
        self._exchange = exchange
        self._invoker = invoker
        self._account = account
        self._admitted = admitted
        self._body = body
        self._instance: RoutedInstance | None = None
        self._model_name: str | None = None
        self._upstream: Upstream | None = None
        """set until the answer is complete"""
        self._answer: StageAnswer | None = None
        self._status = 0
        self._sent_at: float | None = None
        self._spent_seconds = 0.0
        """by earlier containers"""
        self.at = 0
        """index of the current container"""
        self.hostname = admitted.variant.hostname
        self._lines = _without(admitted.lines, _ACCEPT)
        """for the current container"""

    @property
    def begun(self) -> bool:
        """Whether a container has answered, so that no other instance can take over."""
        return self.at > 0

    @property
    def is_at_models(self) -> bool:
        return self._stage.multi_model

    def go_on(self, instance: RoutedInstance, model_name: str | None) -> None:
        """`model_name`: loaded, if a container holds many models."""
        self._instance = instance
        self._model_name = model_name
        self.hostname = self._stage.hostname
        upstream = self._stage.pool.take(self)
        if upstream is not None:
            self.connected(upstream)

    def count(self, status: int) -> None:
        """Counts the current container's status; 500 if it gave none."""
        counters = self._stage.counters
        counters.invocations += 1
        if 400 <= status < 500:
            counters.errors_4xx += 1
        elif status >= 500:
            counters.errors_5xx += 1
        if self._sent_at is not None:
            counters.model_latency.seen.append(int(self._since_sent() * 1e6))

    def let_go(self) -> None:
        """Releases everything; stops calling the owner."""
        if self._instance is None:
            return
        # Breaks the reference cycle.
        del self._owner
        if self._upstream is not None:
            self._upstream.abandon()
            self._upstream = None
        else:
            self._stage.pool.forget(self)
        if self._answer is not None:
            self._answer.kept.drop()
        if self.begun:
            self._body.drop()
        self._instance = None

    # Called by the connection pool

    def connected(self, upstream: Upstream) -> None:
        stage, body, account = self._stage, self._body, self._account
        assert self._instance is not None
        self._upstream = upstream
        account.send(self._instance.instance_id)
        assert account.sent_at is not None
        self._sent_at = account.sent_at
        # The request's time includes earlier containers.
        account.sent_at -= self._spent_seconds
        if self._is_at_last:
            self._owner.expect(upstream)
        else:
            self._answer = StageAnswer(self._exchange, self._invoker.held)
        upstream.begin(self)
        model_name = self._model_name if stage.multi_model else None
        upstream.write_all([container_head(self._lines, model_name, body.size), *body.parts])

    def refused(self) -> None:
        self._owner.refused()

    # Called by the container's connection

    def answer_interim(self, status: int, headers: Headers) -> None: ...

    def answer_begins(self, status: int, headers: Headers, length: int | None) -> None:
        self._status = status
        if self._is_at_last:
            self._owner.answer_begins(status, headers, length)
            return
        assert self._answer is not None
        self._answer.begin(status, headers, length)
        self._check_size(length or 0)

    def answer_continues(self, data: bytes) -> None:
        if self._is_at_last:
            self._owner.answer_continues(data)
            return
        assert self._answer is not None
        self._answer.add(data)
        self._check_size(self._answer.kept.size)

    def answer_ends(self) -> None:
        self._upstream = None
        is_success = 200 <= self._status < 300
        if is_success:
            self.count(self._status)
        if self._is_at_last:
            self._owner.answer_ends()
            return
        assert self._answer is not None
        if is_success:
            self._pass_on(self._answer)
        else:
            self._owner.unsuccessful(self._answer)

    def answer_breaks(self) -> None:
        upstream, self._upstream = self._upstream, None
        if self._is_at_last:
            self._owner.answer_breaks()
        elif upstream is not None and upstream.unread:
            self._owner.refused()
        else:
            self._owner.unanswered()

    def upstream_full(self) -> None: ...  # the body is complete

    def upstream_drained(self) -> None: ...

    @property
    def _stage(self) -> Stage:
        assert self._instance is not None
        return self._instance.stages[self.at]

    @property
    def _is_at_last(self) -> bool:
        assert self._instance is not None
        return self.at == len(self._instance.stages) - 1

    def _since_sent(self) -> float:
        assert self._sent_at is not None
        return self._invoker.monotonic() - self._sent_at

    def _check_size(self, size: int) -> None:
        limit = self._invoker.limits.stage_bytes
        if size <= limit or not 200 <= self._status < 300:
            return
        assert self._instance is not None
        self._invoker.limit_hits[Limit.PIPELINE_BODY] += 1
        between = (self.hostname, self._instance.stages[self.at + 1].hostname)
        name = self._admitted.endpoint.name
        error = self._invoker.texts.too_large_between(name, between, self._status, size, limit)
        self._owner.fail_by_model(500, error)

    def _pass_on(self, answer: StageAnswer) -> None:
        assert self._instance is not None
        if self.begun:
            self._body.drop()
        self._body = answer.kept
        self._spent_seconds += self._since_sent()
        self._sent_at = None
        self.at += 1
        lines = _without(self._admitted.lines if self._is_at_last else self._lines, _CONTENT_TYPE)
        if answer.content_type is not None:
            lines += b"Content-Type: %b\r\n" % answer.content_type
        self._lines = lines
        self.go_on(self._instance, self._model_name)


def _without(lines: bytes, name: bytes) -> bytes:
    """`name` is in lower case."""
    kept = [line for line in lines.split(b"\r\n") if line.partition(b":")[0].lower() != name]
    return b"\r\n".join(kept)
