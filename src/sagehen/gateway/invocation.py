"""One InvokeEndpoint request, from its head to its answer.

Receives the body, is admitted, chooses an instance, has its model loaded where it names one, is
sent, and gives back what the container answers. Driven by callbacks: no task, no lock.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from sagehen.gateway.access_log import CLIENT_GONE, CUT_OFF, Ended
from sagehen.gateway.admission import Admission, Admitted, endpoint_name
from sagehen.gateway.answers import CONTINUE
from sagehen.gateway.choose import choose_by_affinity, choose_free
from sagehen.gateway.container_answer import ContainerAnswer
from sagehen.gateway.container_request import container_head
from sagehen.gateway.exchange import JOINED_BYTES, Exchange
from sagehen.gateway.faults import (
    body_too_large,
    error_body,
    not_ready,
    session_not_kept,
    unavailable,
    validation_error,
)
from sagehen.gateway.fields import joined_fields
from sagehen.gateway.invoker import Invoker
from sagehen.gateway.models import LoadedModel, LoadFailure
from sagehen.gateway.refusal import answer_error
from sagehen.gateway.routes import Instance
from sagehen.gateway.upstream import Headers, Upstream
from sagehen.wire.faults import AwsError
from sagehen.wire.http import Request

__all__ = ["Invocation"]

BUSY_FROM = 32
"""Requests on an instance from which on a second one gets a copy of the model; SageMaker's own
threshold is not published."""
MAX_MISSES = 2
"""How often a container may say that it does not hold the model it was asked to load."""
MAX_LOADS = 4

_STILL_LOADING = "Model {} is not ready for inference yet: it is still being loaded. Try again."
_NO_INSTANCE = (
    "Endpoint {} has no instance that can take a request now. Try again in a moment; "
    "DescribeEndpoint tells its state, and `sagehen logs {}` what its containers said."
)


class Invocation:
    """The handler of one request; also waits for a model and a connection, and gets the answer."""

    __slots__ = (
        "_admitted",
        "_answer",
        "_digest",
        "_exchange",
        "_had_slot",
        "_headers",
        "_hit",
        "_in_line",
        "_instance",
        "_invoker",
        "_loading_since",
        "_loads",
        "_misses",
        "_model_name",
        "_noted",
        "_parts",
        "_received_at",
        "_sent_at",
        "_size",
        "_tried",
        "_upstream",
        "_used",
        "deadline",
        "waiting_since",
    )

    is_streamed = False

    _admitted: Admitted
    _answer: ContainerAnswer

    def __init__(self, exchange: Exchange, invoker: Invoker) -> None:
        self._exchange = exchange
        self._invoker = invoker
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._size = 0
        self._digest: Any = None
        self._instance: Instance | None = None
        """Where it is counted as outstanding."""
        self._in_line = False
        """It waits for a slot."""
        self._had_slot = False
        self._upstream: Upstream | None = None
        """Where it was sent, until all of the answer is here."""
        self._used: Instance | None = None
        """Where it was sent last."""
        self._tried: list[Instance] = []
        self._model_name: str | None = None
        self._hit = True
        self._misses = 0
        self._loads = 0
        self._loading_since: float | None = None
        self._received_at = 0.0
        self._sent_at: float | None = None
        self._noted = False
        self.waiting_since = 0.0
        self.deadline = 0.0

    # What the client's connection calls

    def begin(self) -> None:
        exchange = self._exchange
        self._headers = headers = joined_fields(exchange.headers)
        try:
            self._check_body(int(headers.get("content-length", 0)))
        except AwsError as error:
            self._received_at = self._invoker.monotonic()
            self._note_error(error)
            answer_error(exchange, error)
            return
        if headers.get("expect", "").lower() == "100-continue":
            exchange.interim(CONTINUE)

    def body(self, data: bytes) -> None:
        self._size += len(data)
        self._invoker.body_bytes_held += len(data)
        try:
            # Piece by piece: all bodies that are under way were small once.
            self._check_body(self._size)
        except AwsError as error:
            self._fail(error)
            return
        # Hashed piece by piece, so that a large body never holds up the others for long.
        if self._parts:
            if self._digest is None:
                self._digest = sha256(self._parts[0])
            self._digest.update(data)
        self._parts.append(data)

    def _check_body(self, size: int) -> None:
        """Raises AwsError: a body of so many bytes is too much, alone or with all the others."""
        self._invoker.check_room_for_body()
        if size > self._invoker.max_body_bytes:
            raise body_too_large(self._exchange.request_id.decode())

    def whole(self) -> None:
        invoker = self._invoker
        self._received_at = self.waiting_since = invoker.monotonic()
        self.deadline = self._received_at + invoker.patience_seconds
        try:
            invoker.check_room()
            self._admitted = self._admission().admit(
                self._request(), self._body_sha256(), self._exchange.request_id
            )
        except AwsError as error:
            self._fail(error)
            return
        variant = self._admitted.variant
        variant.counters.invocations += 1
        variant.counters.invocations_per_instance += variant.instance_share
        invoker.enter(self, variant.counters.in_flight)
        if self._admitted.endpoint.shadow is not None:
            headers = self._container_headers()
            invoker.shadows.copy(self._admitted, headers, self._parts, self.is_streamed)
        self._dispatch()

    def client_full(self) -> None:
        if self._upstream is not None:
            self._upstream.pause()

    def client_drained(self) -> None:
        if self._upstream is not None:
            self._upstream.resume()

    def client_gone(self) -> None:
        self._note(CLIENT_GONE, self._relayed())
        self._let_go()

    # What the invoker calls

    def expire(self) -> None:
        """Whatever the request waits for has taken too long."""
        if self._loading_since is not None:
            self._fail(not_ready(_STILL_LOADING.format(self._admitted.target_model)))
        else:
            self._count_model_error(500)
            self._fail(self._invoker.texts.timed_out(self._admitted.endpoint.name))

    # Where it goes

    def _dispatch(self) -> None:
        """Choose an instance among those not tried yet, or wait until one of them is free."""
        line = self._admitted.variant.line
        instances = self._untried()
        if not instances:
            name = self._admitted.endpoint.name
            self._fail(unavailable(_NO_INSTANCE.format(name, name)))
            return
        instance = None if line.taken else self._choose(instances)
        if instance is None:
            self._in_line = True
            line.join(self, again=self._had_slot)
        else:
            self._go_to(instance)

    def _go_to(self, instance: Instance) -> None:
        """Take a slot; send, or have a model loaded first."""
        self._instance = instance
        self._had_slot = True
        instance.take()
        target_model = self._admitted.target_model
        if target_model is not None:
            self._model_name = self._invoker.models.find(instance.instance_id, target_model)
            if self._model_name is None:
                self._load(instance, target_model)
                return
        self._send(instance)

    def _untried(self) -> Sequence[Instance]:
        """Of a multi-model variant in the order in which they are to hold the model."""
        variant = self._admitted.variant.line.variant
        target_model = self._admitted.target_model
        if (holder := self._admitted.instance) is not None:
            return () if holder in self._tried else (holder,)
        instances: Sequence[Instance] = variant.instances
        if target_model is not None and len(instances) > 1:
            instances = variant.ranked(target_model)
        if self._tried:
            instances = [one for one in instances if one not in self._tried]
        return instances

    def _choose(self, instances: Sequence[Instance]) -> Instance | None:
        """One of `instances` that has a free slot."""
        if self._admitted.target_model is not None:
            return choose_by_affinity(instances, BUSY_FROM)
        strategy = self._admitted.variant.route.strategy
        return choose_free(instances, strategy, self._invoker.random)

    def _elsewhere(self) -> None:
        """What was chosen provably did not begin: another may."""
        self._tried.append(self._leave_instance())
        self._dispatch()

    def _leave_instance(self) -> Instance:
        instance, self._instance = self._instance, None
        assert instance is not None
        instance.give()
        self._admitted.variant.line.wake()
        return instance

    # What the line calls

    def may_go_to(self, instance: Instance) -> bool:
        holder = self._admitted.instance
        return instance not in self._tried and holder in (None, instance)

    def prefers(self, instance: Instance) -> bool:
        target_model = self._admitted.target_model
        if target_model is None:
            return True
        first = self._admitted.variant.line.variant.ranked(target_model)[0]
        return instance is first or self._invoker.models.holds(instance.instance_id, target_model)

    def slot_free(self) -> None:
        self._in_line = False
        instance = self._choose(self._untried())
        if instance is None:
            # Another gateway has taken it in this very moment.
            self._in_line = True
            self._admitted.variant.line.join(self, again=True)
        else:
            self._go_to(instance)

    # The model

    def _load(self, instance: Instance, target_model: str) -> None:
        self._loads += 1
        self._loading_since = now = self._invoker.monotonic()
        wait_seconds = self.deadline - now
        self._invoker.models.load(instance.instance_id, target_model, self, wait_seconds)

    def model_loaded(self, model: LoadedModel) -> None:
        waited = self._stop_loading()
        if not model.hit:
            self._hit = False
            counters = self._admitted.variant.counters
            counters.loading_waits += 1
            counters.loading_wait_us += round(waited * 1e6)
        self._model_name = model.model_name
        assert self._instance is not None
        self._send(self._instance)

    def model_failed(self, failure: LoadFailure) -> None:
        self._stop_loading()
        self._hit = False
        if failure.status == 429 and self._may_wait_on():
            # Whoever asked first had less time left than this request has.
            self._leave_instance()
            self._dispatch()
        elif failure.status == 429:
            self._fail(not_ready(failure.message))
        elif failure.status == 400:
            self._fail(validation_error(failure.message))
        elif failure.status in (424, 507):
            status = 507 if failure.status == 507 else 500
            self._answer_model_error(status, failure.message.encode(), True)
        else:
            self._elsewhere()

    def _may_wait_on(self) -> bool:
        return self._loads < MAX_LOADS and self.deadline - self._invoker.monotonic() > 1

    def _stop_loading(self) -> float:
        since, self._loading_since = self._loading_since, None
        return 0.0 if since is None else self._invoker.monotonic() - since

    def _load_again(self) -> None:
        """The container does not hold the model after all, or had no room for its work."""
        self._misses += 1
        self._hit = False
        instance = self._leave_instance()
        target_model = self._admitted.target_model
        assert target_model is not None
        self._invoker.models.forget(instance.instance_id, target_model)
        self._dispatch()

    # What the pool of connections calls

    def connected(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._used = self._instance
        self._answer = self._new_answer()
        self._sent_at = self._invoker.monotonic()
        upstream.begin(self)
        head = container_head(self._container_headers(), self._model_name, self._size)
        if self._size <= JOINED_BYTES:
            upstream.write(b"".join([head, *self._parts]))
        else:
            upstream.write_all([head, *self._parts])

    def refused(self) -> None:
        self._elsewhere()

    def _send(self, instance: Instance) -> None:
        upstream = instance.pool.take(self)
        if upstream is not None:
            self.connected(upstream)

    # What the container's connection calls

    def answer_interim(self, status: int, headers: Headers) -> None: ...

    def answer_begins(self, status: int, headers: Headers, length: int | None) -> None:
        if self._admitted.session_id is not None and 200 <= status < 300:
            try:
                self._answer.add_fields(self._session_fields(self._admitted.session_id, headers))
            except OSError as error:
                self._fail(session_not_kept(error))
                return
        self._answer.begin(status, headers, length)

    def _session_fields(self, session_id: str, headers: Headers) -> bytes:
        assert self._instance is not None
        return self._invoker.sessions.answered(
            session_id,
            self._admitted.endpoint.name,
            self._admitted.variant.route.name,
            self._instance.instance_id,
            headers,
        )

    def answer_continues(self, data: bytes) -> None:
        self._answer.add(data)

    def answer_ends(self) -> None:
        self._upstream = None
        answer = self._answer
        if answer.is_success:
            self._leave_instance()
            self._count()
            self._note(200, answer.size)
            self._let_go()
            answer.give()
        elif answer.is_not_started:
            self._elsewhere()
        elif self._is_miss(answer.status):
            self._load_again()
        else:
            self._answer_model_error(answer.status, answer.body, answer.whole)

    def answer_breaks(self) -> None:
        self._upstream = None
        self._leave_instance()
        self._count_model_error(500)
        self._fail(self._invoker.texts.no_answer(self._admitted.endpoint.name))

    def upstream_full(self) -> None: ...  # The body is all here: there is nobody to pause.

    def upstream_drained(self) -> None: ...

    def _is_miss(self, status: int) -> bool:
        return self._model_name is not None and status in (404, 507) and self._misses < MAX_MISSES

    # The end

    def _answer_model_error(self, status: int, body: bytes, whole: bool) -> None:
        self._leave_instance()
        self._count_model_error(status)
        endpoint = self._admitted.endpoint.name
        self._fail(self._invoker.texts.answered_with_error(endpoint, status, body, whole))

    def _fail(self, error: AwsError) -> None:
        """End with `error`; where part of an answer is out already, by cutting the caller off."""
        self._note_error(error)
        self._let_go()
        if self._exchange.begun:
            self._break_off()
        else:
            answer_error(self._exchange, error)

    def _let_go(self) -> None:
        """Hold nothing any more, whatever was under way."""
        if self._upstream is not None:
            self._upstream.abandon()
            self._upstream = None
        elif self._in_line:
            self._in_line = False
            self._admitted.variant.line.leave(self)
        elif self._instance is not None:
            self._stop_waiting(self._instance)
        if self._instance is not None:
            self._leave_instance()
        self._invoker.leave(self)
        self._invoker.body_bytes_held -= self._size
        self._size = 0

    def _stop_waiting(self, instance: Instance) -> None:
        target_model = self._admitted.target_model
        if self._loading_since is not None and target_model is not None:
            self._invoker.models.leave(instance.instance_id, target_model, self)
        else:
            instance.pool.forget(self)

    def _count_model_error(self, status: int) -> None:
        counters = self._admitted.variant.counters
        counters.model_errors += 1
        if 400 <= status < 500:
            counters.errors_4xx += 1
        else:
            counters.errors_5xx += 1
        self._count()

    def _count(self) -> None:
        counters = self._admitted.variant.counters
        if self._sent_at is not None:
            now = self._invoker.monotonic()
            model_us = int((now - self._sent_at) * 1e6)
            counters.model_latency.seen.append(model_us)
            counters.overhead_latency.seen.append(int((now - self._received_at) * 1e6) - model_us)
        if self._admitted.target_model is not None:
            counters.cache_samples += 1
            counters.cache_hits += self._hit

    # The access log

    def _note_error(self, error: AwsError) -> None:
        if self._invoker.access_log is None:
            return
        if self._exchange.begun:
            self._note(CUT_OFF, self._relayed())
        else:
            self._note(error.status or 400, len(error_body(error)))

    def _note(self, status: int | str, answer_bytes: int) -> None:
        """To be called when the end is known, before anything is let go; the first call counts."""
        access_log = self._invoker.access_log
        if access_log is None or self._noted:
            return
        self._noted = True
        admitted: Admitted | None = getattr(self, "_admitted", None)
        now = self._invoker.monotonic()
        model_us = None if self._sent_at is None else int((now - self._sent_at) * 1e6)
        since_us = int((now - self._received_at) * 1e6) if self._received_at else 0
        access_log.note(
            Ended(
                request_id=self._exchange.request_id,
                endpoint=admitted.endpoint.name if admitted else endpoint_name(self._path()),
                variant=admitted.variant.route.name if admitted else None,
                instance=self._used.instance_id if self._used else None,
                status=status,
                request_bytes=self._size,
                answer_bytes=answer_bytes,
                model_us=model_us,
                overhead_us=since_us - (model_us or 0),
            )
        )

    def _relayed(self) -> int:
        """Bytes of an answer's body that the caller was sent, as far as is known here."""
        return self._answer.size if self._exchange.begun else 0

    # What a streamed invocation does in its own way

    def _admission(self) -> Admission:
        return self._invoker.admission

    def _container_headers(self) -> Headers:
        return self._exchange.headers

    def _new_answer(self) -> ContainerAnswer:
        return ContainerAnswer(self._exchange, self._admitted.variant.invoked_field)

    def _break_off(self) -> None:
        """Part of an answer is out, and there is no more of it."""
        self._exchange.channel.abort()

    # The request

    def _path(self) -> str:
        return self._exchange.target.decode("latin-1").partition("?")[0]

    def _request(self) -> Request:
        exchange = self._exchange
        path, _, query = exchange.target.decode("latin-1").partition("?")
        return Request(exchange.method.decode(), path, query, self._headers)

    def _body_sha256(self) -> str:
        if self._digest is not None:
            return str(self._digest.hexdigest())
        return sha256(self._parts[0] if self._parts else b"").hexdigest()
