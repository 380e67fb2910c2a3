"""One InvokeEndpoint request from head to answer, driven by callbacks: no task, no lock."""

import asyncio

from sagehen.gateway.admission.admission import Admission, Admitted
from sagehen.gateway.admission.errors import (
    answer_error,
    body_too_large,
    error_body,
    lost_session,
    no_instance,
    not_loaded,
    session_not_kept,
    unavailable,
)
from sagehen.gateway.admission.params import container_head, read_target
from sagehen.gateway.client.exchange import CONTINUE, JOINED_BYTES, Exchange
from sagehen.gateway.client.limits import Limit
from sagehen.gateway.container.answer import ContainerAnswer
from sagehen.gateway.container.connection import Headers, Upstream
from sagehen.gateway.invocation.invoker import Body, Invoker
from sagehen.gateway.invocation.pipeline import Passage
from sagehen.gateway.metrics.request_metrics import CLIENT_GONE, CUT_OFF, Account
from sagehen.gateway.multimodel.model_wait import ModelWait
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.gateway.routing.placement import Placement
from sagehen.wire.errors import AwsError

__all__ = ["Invocation"]

QUESTION_SECONDS = 0.05
MOST_QUESTIONS = 10
"""the caller waits for the reason, so a later one is left out"""
TRUSTED_BYTES = 16 * 1024
"""smaller bodies are received unchecked, on all connections at once; larger ones are refused at the
head if it cannot be signed correctly"""


class Invocation:
    """Handles one request, and receives the container's answer."""

    is_streamed = False

    # Defaults live on the class, as most requests never change them.
    _admitted: Admitted
    _answer: ContainerAnswer
    _placement: Placement | None = None
    _passage: Passage | None = None
    """through several containers"""
    _upstream: Upstream | None = None
    """set until the answer is complete"""
    _relaying = False
    """the caller has part of the answer"""
    _model: ModelWait | None = None
    _model_name: str | None = None
    """in the container"""
    deadline = 0.0
    _asking: asyncio.TimerHandle | None = None
    """asks again why the container ended"""

    def __init__(self, exchange: Exchange, invoker: Invoker) -> None:
        self._exchange = exchange
        self._invoker = invoker
        self._body = Body(invoker.held)
        self._account = Account(invoker.monotonic, invoker.access_log)

    # Called by the client's connection

    def begin(self) -> None:
        fields = self._exchange.fields
        try:
            size = int(fields.get("content-length", 0))
            if size > TRUSTED_BYTES or "transfer-encoding" in fields:
                # Callers without a key get no memory.
                self._admission().check_head(self._exchange)
            self._check_size(size)
        except AwsError as error:
            self._account.received_at = self._invoker.monotonic()
            self._note_error(error)
            answer_error(self._exchange, error)
            return
        if "expect" in fields and fields["expect"].lower() == "100-continue":
            self._exchange.interim(CONTINUE)

    def body(self, data: bytes) -> None:
        self._body.add(data)
        try:
            # Checked for each piece: all bodies together may have outgrown the bound.
            self._check_size(self._body.size)
        except AwsError as error:
            self.fail(error)

    def whole(self) -> None:
        invoker = self._invoker
        self._account.received_at = now = invoker.monotonic()
        self.deadline = now + invoker.limits.seconds
        try:
            invoker.live.check_room()
            admitted = self._admission().admit(self._exchange, self._body.sha256())
        except AwsError as error:
            self.fail(error)
            return
        self._admitted = admitted
        self._account.admit(admitted)
        invoker.live.enter(self, admitted.variant.counters.in_flight)
        if admitted.endpoint.shadow is not None:
            invoker.shadows.copy(admitted, self._body.parts, self.is_streamed)
        self._placement = Placement(admitted, self, invoker.models, invoker.random, now)
        self._placement.find()

    def client_full(self) -> None:
        if self._upstream is not None:
            self._upstream.pause()

    def client_drained(self) -> None:
        if self._upstream is not None:
            self._upstream.resume()

    def client_gone(self) -> None:
        self._note(CLIENT_GONE, self._relayed())
        self._let_go()

    def _check_size(self, size: int) -> None:
        """Raises AwsError if this body or all together are too large."""
        invoker = self._invoker
        if invoker.held.is_full:
            invoker.limit_hits[Limit.BODIES] += 1
            raise unavailable("This gateway holds all the data it can. Try again in a moment.")
        if size > invoker.limits.body_bytes:
            invoker.limit_hits[Limit.BODY_SIZE] += 1
            request_id = self._exchange.request_id.decode()
            raise body_too_large(request_id, invoker.limits.body_bytes)

    # Called by ActiveRequests

    def expire(self) -> None:
        if self._model is not None and self._model.is_on:
            self.fail(self._model.late())
        else:
            limit = Limit.STREAM_TIMEOUT if self._relaying else Limit.INVOCATION_TIMEOUT
            self._invoker.limit_hits[limit] += 1
            name = self._admitted.endpoint.name
            self.fail_by_model(500, self._invoker.texts.timed_out(name, self._container))

    def shut_down(self) -> None:
        """The drain time is over."""
        self._note(CUT_OFF, self._relayed())
        self._let_go()
        self._break_off()

    # Called by the placement

    def placed(self, instance: RoutedInstance) -> None:
        target_model = self._admitted.target_model
        if target_model is None:
            self._send(instance)
            return
        if self._model is None:
            self._model = ModelWait(self, target_model, self._account, self._invoker)
        self._model.begin(instance)

    def nowhere(self) -> None:
        admitted = self._admitted
        if admitted.instance is not None and admitted.instance.has_left:
            assert admitted.session_id is not None
            self.fail(lost_session(admitted.session_id, admitted.endpoint.name))
        elif self._model is not None and self._model.failure is not None:
            assert admitted.target_model is not None
            self.fail(not_loaded(admitted.target_model, self._model.failure))
        else:
            self.fail(no_instance(admitted.endpoint.name))

    # Called by the model wait

    def model_ready(self, model_name: str) -> None:
        self._model_name = model_name
        self._send(self._place())

    def model_refused(self, status: int, message: str) -> None:
        self._answer_model_error(status, message.encode(), True)

    def look_again(self) -> None:
        """Stays on its instance once a pipeline container has answered."""
        if self._passage is not None and self._passage.begun:
            assert self._model is not None
            self._model.load()
            return
        assert self._placement is not None
        self._placement.leave()
        self._placement.find()

    # Called by the connection pool

    def connected(self, upstream: Upstream) -> None:
        body = self._body
        self._upstream = upstream
        self._answer = self._new_answer()
        self._account.send(self._place().instance_id)
        upstream.begin(self)
        head = container_head(self._admitted.lines, self._model_name, body.size)
        if body.size <= JOINED_BYTES:
            upstream.write(b"".join([head, *body.parts]))
        else:
            upstream.write_all([head, *body.parts])

    def refused(self) -> None:
        """The container provably did not begin."""
        if self._passage is not None and self._passage.begun:
            self.unanswered()
            return
        assert self._placement is not None
        self._placement.elsewhere()

    def _send(self, instance: RoutedInstance) -> None:
        if instance.stages:
            self._pass_through(instance)
            return
        upstream = instance.pool.take(self)
        if upstream is not None:
            self.connected(upstream)

    def _pass_through(self, instance: RoutedInstance) -> None:
        if self._passage is None:
            exchange, admitted, body = self._exchange, self._admitted, self._body
            self._passage = Passage(self, exchange, admitted, body, self._account, self._invoker)
        self._passage.go_on(instance, self._model_name)

    # Called by the container's connection

    def answer_interim(self, status: int, headers: Headers) -> None: ...

    def answer_begins(self, status: int, headers: Headers, length: int | None) -> None:
        if self._admitted.session_id is not None and 200 <= status < 300:
            try:
                self._answer.add_fields(self._session_fields(self._admitted.session_id, headers))
            except OSError as error:
                self.fail(session_not_kept(error))
                return
        self._answer.begin(status, headers, length)
        self._note_relaying()

    def _session_fields(self, session_id: str, headers: Headers) -> bytes:
        return self._invoker.sessions.answered(
            session_id,
            self._admitted.endpoint.name,
            self._admitted.variant.route.name,
            self._place(),
            headers,
        )

    def answer_continues(self, data: bytes) -> None:
        self._answer.add(data)
        if not self._relaying:
            self._note_relaying()

    def _note_relaying(self) -> None:
        if self._answer.passing:
            self._relaying = True
            # The caller's pace counts from now on: use a stream's time-out.
            self._invoker.live.enter_stream(self)

    def answer_ends(self) -> None:
        self._upstream = None
        answer = self._answer
        self._account.answer()
        if answer.is_success:
            # Answer first: the caller need not wait for the counting.
            answer.give()
            self._account.end()
            self._note(200, answer.size)
            self._let_go()
        else:
            self.unsuccessful(answer)

    def answer_breaks(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None and upstream.unread:
            # Our model server begins only requests that it has read whole.
            self.refused()
        else:
            self.unanswered()

    def upstream_full(self) -> None: ...  # the body is complete

    def upstream_drained(self) -> None: ...

    # Called by the pipeline

    def expect(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._answer = self._new_answer()

    def unsuccessful(self, answer: ContainerAnswer) -> None:
        at_models = self._passage is None or self._passage.is_at_models
        if answer.is_not_started:
            self.refused()
        elif self._model is not None and at_models and self._model.is_miss(answer):
            self._model.lost(answer.status)
        else:
            self._answer_model_error(answer.status, answer.body, answer.whole)

    def unanswered(self) -> None:
        self._upstream = None
        self._ask_why(0 if self._exchange.begun else MOST_QUESTIONS)

    def _ask_why(self, questions: int) -> None:
        """Fails with the reason, which the agent learns a moment after the connection is lost."""
        reason = self._invoker.why_ended(self._place())
        if reason is None and questions:
            loop = asyncio.get_running_loop()
            self._asking = loop.call_later(QUESTION_SECONDS, self._ask_why, questions - 1)
            return
        name = self._admitted.endpoint.name
        self.fail_by_model(500, self._invoker.texts.no_answer(name, self._container, reason))

    # The end

    def _answer_model_error(self, status: int, body: bytes, whole: bool) -> None:
        name, container = self._admitted.endpoint.name, self._container
        error = self._invoker.texts.answered_with_error(name, container, status, body, whole)
        self.fail_by_model(status, error)

    def fail_by_model(self, status: int, error: AwsError) -> None:
        """Ends with an error of the container."""
        if self._passage is not None:
            self._passage.count(status)
        self._account.fail(status)
        self.fail(error)

    @property
    def _container(self) -> str:
        passage = self._passage
        return self._admitted.variant.hostname if passage is None else passage.hostname

    def fail(self, error: AwsError) -> None:
        """Cuts the caller off if part of an answer is sent."""
        self._note_error(error)
        self._let_go()
        if self._exchange.begun:
            self._break_off()
        else:
            answer_error(self._exchange, error)

    def _let_go(self) -> None:
        placement = self._placement
        self._account.count_look_up()
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        if self._upstream is not None:
            self._upstream.abandon()
            self._upstream = None
        elif placement is not None and placement.instance is not None:
            placement.instance.pool.forget(self)
        if placement is not None:
            placement.let_go()
        if self._model is not None:
            self._model.let_go()
            self._model = None
        if self._passage is not None:
            self._passage.let_go()
        self._invoker.live.leave(self)
        self._body.drop()

    def _place(self) -> RoutedInstance:
        assert self._placement is not None
        assert self._placement.instance is not None
        return self._placement.instance

    # The access log

    def _note_error(self, error: AwsError) -> None:
        if self._exchange.begun:
            self._note(CUT_OFF, self._relayed())
        elif self._invoker.access_log is not None:
            self._note(error.status or 400, len(error_body(error)))

    def _note(self, status: int | str, answer_bytes: int) -> None:
        """Must be called before the body is dropped."""
        if self._invoker.access_log is not None:
            exchange = self._exchange
            endpoint = read_target(exchange.target).endpoint
            size = self._body.size
            self._account.note(status, exchange.request_id, endpoint, size, answer_bytes)

    def _relayed(self) -> int:
        return self._answer.size if self._exchange.begun else 0

    # Overridden by streamed invocations

    def _admission(self) -> Admission:
        return self._invoker.admission

    def _new_answer(self) -> ContainerAnswer:
        return ContainerAnswer(self._exchange, self._admitted.variant.invoked_field)

    def _break_off(self) -> None:
        self._exchange.channel.abort()
