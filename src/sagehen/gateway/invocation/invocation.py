"""One InvokeEndpoint request from head to answer, driven by callbacks: no task, no lock.

Its phases are drawn in phases.py.
"""

import asyncio

from sagehen.gateway.admission import errors
from sagehen.gateway.admission.admission import Admission, Admitted
from sagehen.gateway.client.limits import Limit
from sagehen.gateway.container.answer import ContainerAnswer
from sagehen.gateway.invocation.context import InvocationContext, LoggedRequest, RequestBody
from sagehen.gateway.invocation.fallback import (
    answer_offline,
    end_by_node,
    no_instance_error,
    record_session,
    start_timeout,
)
from sagehen.gateway.invocation.phases import (
    ANSWERED,
    CONNECTING,
    DONE,
    INVOCATION_MOVES,
    LOADING,
    LOST,
    PIPELINE,
    PLACING,
    RECEIVING,
    RELAYING,
    SENT,
    STARTING,
)
from sagehen.gateway.invocation.pipeline import PipelineRun
from sagehen.gateway.metrics.request_metrics import CLIENT_GONE, CUT_OFF, RequestMetrics
from sagehen.gateway.multimodel.model_wait import ModelWait
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.gateway.routing.placement import Placement
from sagehen.http1.exchange import Exchange
from sagehen.http1.fields import Headers
from sagehen.link.upstream import Upstream, invoke_path
from sagehen.wire.errors import AwsError

__all__ = ["Invocation"]

END_REASON_POLL_SECONDS = 0.05
MAX_END_REASON_POLLS = 10
"""the caller waits for the reason, so a later one is left out"""
MAX_UNCHECKED_BYTES = 16 * 1024
"""smaller bodies are received unchecked, on all connections at once; larger ones are refused at the
head if it cannot be signed correctly"""

_WITH_CONNECTION = frozenset((SENT, RELAYING))


class Invocation(LoggedRequest):
    """Handles one request, and receives the container's answer."""

    is_streamed = False

    _moves = INVOCATION_MOVES
    deadline = start_deadline = 0.0

    # Set from PLACING on
    _admitted: Admitted
    _placement: Placement
    model_wait: ModelWait
    """of a request with a target model"""
    # Set when SENT
    _upstream: Upstream
    """this request's own while in _WITH_CONNECTION"""
    _answer: ContainerAnswer
    # Defaults live on the class, as most requests never change them.
    _model_name: str | None = None
    """in the container"""
    _pipeline: PipelineRun | None = None
    """through several containers"""
    _end_reason_timer: asyncio.TimerHandle | None = None

    def __init__(self, exchange: Exchange, context: InvocationContext) -> None:
        self.phase = RECEIVING
        self._exchange = exchange
        self._context = context
        self._body = RequestBody(context.body_memory)
        self._metrics = RequestMetrics(context.monotonic, context.access_log)

    # Called by the client's connection

    def begin(self) -> None:
        fields = self._exchange.fields
        try:
            size = int(fields.get("content-length", 0))
            if size > MAX_UNCHECKED_BYTES or "transfer-encoding" in fields:
                # Callers without a key get no memory.
                self._admission().check_head(self._exchange)
            self._context.check_size(size, self._exchange.request_id)
        except AwsError as error:
            self._metrics.received_at = self._context.monotonic()
            self.fail(error)
            return
        self._exchange.continue_if_expected()

    def body(self, data: bytes) -> None:
        self._body.add(data)
        try:
            # Checked for each piece: all bodies together may have outgrown the bound.
            self._context.check_size(self._body.size, self._exchange.request_id)
        except AwsError as error:
            self.fail(error)

    def whole(self) -> None:
        context = self._context
        self._metrics.received_at = now = context.monotonic()
        self.deadline = now + context.limits.seconds
        try:
            context.active.check_limit()
            admitted = self._admission().admit(self._exchange, self._body.sha256())
            if (concurrency := admitted.variant.concurrency) is not None:
                concurrency.admit(self._body.size)
        except AwsError as error:
            self.fail(error)
            return
        self._admitted = admitted
        self._metrics.admit(admitted)
        context.active.add(self, admitted.variant.in_flight)
        if admitted.endpoint.shadow is not None:
            context.shadows.copy(admitted, self._body.parts, self.is_streamed)
        if admitted.target_model is not None:
            self.model_wait = ModelWait(self, admitted.target_model, self._metrics, context)
        self._placement = Placement(admitted, self, context.models, context.random, now)
        self._move(PLACING)
        self._placement.find()

    def client_full(self) -> None:
        if self.phase in _WITH_CONNECTION:
            self._upstream.pause()

    def client_drained(self) -> None:
        if self.phase in _WITH_CONNECTION:
            self._upstream.resume()

    def client_gone(self) -> None:
        if self.phase is not DONE:  # else it was cut off here
            self._log(CLIENT_GONE, self._relayed_bytes)
            self._release()

    # Called by ActiveRequests

    def expire(self) -> None:
        if self.phase is LOADING:
            self.fail(self.model_wait.timeout_error())
        elif self.phase is STARTING:
            self.fail(start_timeout(self._admitted, self._context))
        else:
            limit = Limit.STREAM_TIMEOUT if self.phase is RELAYING else Limit.INVOCATION_TIMEOUT
            self._context.limit_hits[limit] += 1
            name = self._admitted.endpoint.name
            self.fail_by_model(500, self._context.errors.timed_out(name, self._container))

    def shut_down(self) -> None:
        """Cuts the caller off, as the drain time is over."""
        self._log(CUT_OFF, self._relayed_bytes)
        self._release()
        self._break_off()

    # Called by the placement

    def placed(self, instance: RoutedInstance) -> None:
        if self._admitted.target_model is None or instance.is_remote:
            self._send(instance)
        else:
            self.model_wait.begin(instance)

    def no_instance_left(self) -> None:
        if self._answer_offline():
            return
        failure = None if self._admitted.target_model is None else self.model_wait.failure
        error = no_instance_error(self._admitted, failure, self._placement, self._context)
        if error is None:
            self._move(STARTING)
            self._context.active.begin_start(self)
            self._placement.wait_for_start()
        else:
            self.fail(error)

    def instance_started(self) -> None:
        self._move(PLACING)
        self._context.active.end_start(self)

    # Called by the wait for a model

    def model_loading(self) -> None:
        self._move(LOADING)

    def model_ready(self, model_name: str) -> None:
        self._model_name = model_name
        self._send(self._placement.instance)

    def place_again(self) -> None:
        self._move(PLACING)
        self._placement.find_again()

    @property
    def must_stay_on_instance(self) -> bool:
        return self._pipeline is not None and self._pipeline.has_begun

    # Called by the connection pool

    def connected(self, upstream: Upstream) -> None:
        body = self._body
        self._move(SENT)
        self._upstream = upstream
        self._answer = self._new_answer()
        self._metrics.send(self._placement.instance.instance_id)
        path = invoke_path(self._model_name)
        upstream.send(self, path, self._admitted.header_lines, body.parts, body.size)

    def refused(self) -> None:
        """The container provably did not begin."""
        if self.must_stay_on_instance:
            self.unanswered()
        else:
            self._move(PLACING)
            self._placement.find_another()

    def _send(self, instance: RoutedInstance) -> None:
        if instance.stages:
            self._send_through(instance)
            return
        upstream = instance.upstreams.take(self)
        if upstream is None:
            self._move(CONNECTING)
        else:
            self.connected(upstream)

    def _send_through(self, instance: RoutedInstance) -> None:
        self._move(PIPELINE)
        pipeline = self._pipeline
        if pipeline is None or not pipeline.has_begun:
            # One that no container has answered on another instance holds nothing.
            exchange, admitted, body = self._exchange, self._admitted, self._body
            pipeline = self._pipeline = PipelineRun(
                self, exchange, admitted, body, self._metrics, self._context, instance
            )
        pipeline.resume(self._model_name)

    # Called by the container's connection

    def answer_interim(self, status: int, headers: Headers) -> None: ...

    def answer_begins(self, status: int, headers: Headers, length: int | None) -> None:
        admitted, instance = self._admitted, self._placement.instance
        if admitted.session_id is not None and 200 <= status < 300:
            try:
                fields = record_session(self._context.sessions, admitted, instance, headers)
            except AwsError as error:
                self.fail(error)
                return
            self._answer.add_fields(fields)
        self._answer.begin(status, headers, length)
        if self._answer.passing:
            self._begin_relaying()

    def answer_continues(self, data: bytes) -> None:
        self._answer.add(data)
        if self._answer.passing and self.phase is SENT:
            self._begin_relaying()

    def _begin_relaying(self) -> None:
        self._move(RELAYING)
        # The caller's pace counts from now on: use a stream's time-out.
        self._context.active.begin_stream(self)

    def answer_ends(self) -> None:
        self._move(ANSWERED)
        answer = self._answer
        self._metrics.answer()
        if answer.is_success:
            # Answer first: the caller need not wait for the counting.
            answer.give()
            self._metrics.succeed()
            self._log(200, answer.size)
            self._release()
        else:
            self.unsuccessful(answer)

    def answer_breaks(self) -> None:
        if self._placement.instance.is_remote and end_by_node(self, self._upstream):
            return
        (self.refused if self._upstream.not_begun else self.unanswered)()

    def upstream_full(self) -> None: ...  # the body is complete

    def upstream_drained(self) -> None: ...

    # Called by the pipeline

    def sent_to_last(self, upstream: Upstream) -> None:
        self._move(SENT)
        self._upstream = upstream
        self._answer = self._new_answer()

    def unsuccessful(self, answer: ContainerAnswer) -> None:
        at_models = self._pipeline is None or self._pipeline.is_at_models
        has_model = self._admitted.target_model is not None and at_models
        if answer.is_not_started:
            self.refused()
        elif has_model and self.model_wait.is_miss(answer):
            self.model_wait.model_missing(answer.status)
        elif answer.is_worker_death and self._answer_offline():
            return
        else:
            self.fail_with_answer(answer.status, answer.body, answer.whole)

    def unanswered(self) -> None:
        self._move(LOST)
        if not self._answer_offline():
            self._fail_with_end_reason(0 if self._exchange.begun else MAX_END_REASON_POLLS)

    def _fail_with_end_reason(self, polls: int) -> None:
        """Waits for the reason, which the agent learns a moment after the connection is lost."""
        reason = self._context.end_reason(self._placement.instance)
        if reason is None and polls:
            loop = asyncio.get_running_loop()
            self._end_reason_timer = loop.call_later(
                END_REASON_POLL_SECONDS, self._fail_with_end_reason, polls - 1
            )
            return
        name = self._admitted.endpoint.name
        self.fail_by_model(500, self._context.errors.no_answer(name, self._container, reason))

    # The end

    def _answer_offline(self) -> bool:
        """Answers from offline results, if they know the keys; returns whether they do."""
        if self.is_streamed:
            return False
        size = answer_offline(self._exchange, self._admitted, self._body.parts)
        if size is None:
            return False
        self._metrics.count_offline_result()
        self._log(200, size)
        self._release()
        return True

    def fail_with_answer(self, status: int, body: bytes, whole: bool) -> None:
        name, container = self._admitted.endpoint.name, self._container
        error = self._context.errors.answered_with_error(name, container, status, body, whole)
        self.fail_by_model(status, error)

    def fail_by_model(self, status: int, error: AwsError) -> None:
        """Ends with an error of the container."""
        if self._pipeline is not None:
            self._pipeline.count(status)
        self._metrics.fail(status)
        message = str(error.members.get("OriginalMessage", error.message))
        self._metrics.note_error(self._context.now(), status, message)
        self.fail(error)

    @property
    def _container(self) -> str:
        pipeline = self._pipeline
        return self._admitted.variant.hostname if pipeline is None else pipeline.hostname

    def fail(self, error: AwsError) -> None:
        """Cuts the caller off if part of an answer is sent."""
        self._log_error(error)
        self._release()
        if self._exchange.begun:
            self._break_off()
        else:
            errors.answer_error(self._exchange, error)

    def _release(self) -> None:
        phase = self.phase
        self._move(DONE)
        self._body.drop()
        if phase is RECEIVING:
            return
        if phase in _WITH_CONNECTION:
            self._upstream.abandon()
        elif phase is CONNECTING:
            self._placement.instance.upstreams.forget(self)
        elif self._end_reason_timer is not None:
            self._end_reason_timer.cancel()
        self._placement.release()
        if self._admitted.target_model is not None:
            self._metrics.count_look_up()
            self.model_wait.release()
        if self._pipeline is not None:
            self._pipeline.release()
        self._context.active.remove(self)

    # Overridden by streamed invocations

    def _admission(self) -> Admission:
        return self._context.admission

    def _new_answer(self) -> ContainerAnswer:
        return ContainerAnswer(self._exchange, self._admitted.variant.invoked_field)

    def _break_off(self) -> None:
        self._exchange.channel.abort()
