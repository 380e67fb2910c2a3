"""A request of another node, placed on an instance of this one."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from sagehen.gateway.admission.admission import Admitted
from sagehen.gateway.container.answer import ContainerAnswer
from sagehen.gateway.invocation.context import InvocationContext, RequestBody
from sagehen.gateway.invocation.invocation import Invocation
from sagehen.gateway.invocation.phases import DONE, PLACING
from sagehen.gateway.metrics.counters import VariantCounters
from sagehen.gateway.metrics.request_metrics import RequestMetrics
from sagehen.gateway.multimodel.model_wait import ModelWait
from sagehen.gateway.peers.door_queue import DoorPlacement, door_queue
from sagehen.gateway.peers.messages import Failure
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.http1.fields import Headers, field_lines
from sagehen.link.frames import ANSWER, INLINE_BYTES, LARGE_ANSWER, encode_frame, encode_length
from sagehen.link.stream import BodySender
from sagehen.wire.errors import AwsError

if TYPE_CHECKING:
    from sagehen.gateway.peers.door_connection import DoorConnection

__all__ = ["DoorInvocation"]

_PASSED_ON = (b"content-type", b"x-amzn-", b"x-sagehen-")
"""beginnings of the header names that a caller's gateway may use"""


class DoorInvocation(Invocation):
    """Waits for a slot and for its body, whichever comes last, and then sends like any other.

    The gateway of the caller counts and logs the request, and words its answer.
    """

    _exchange: "_DoorExchange"  # type: ignore[assignment]
    _answer: "_DoorAnswer"
    _placement: DoorPlacement
    _model_status = 0
    _granted_at: float | None = None

    def __init__(
        self,
        connection: "DoorConnection",
        context: InvocationContext,
        admitted: Admitted,
        counters: VariantCounters,
        age_seconds: float,
    ) -> None:
        """`counters`: of the variant, for what only this node knows."""
        self.phase = PLACING
        now = context.monotonic()
        self.number = 0
        """on the link; 0: a reservation"""
        self.reservation = 0
        self.route = 0
        """of the link, for the report of free slots"""
        self.is_whole = False
        """the body has come"""
        self._connection = connection
        self._exchange = _DoorExchange()
        self._context = context
        self._body = RequestBody(context.body_memory)
        self._metrics = _DoorMetrics(context.monotonic, counters)
        self._metrics.received_at = now
        self._metrics.admit(admitted)
        self._admitted = admitted
        self.deadline = now - age_seconds + context.limits.seconds
        if admitted.target_model is not None:
            self.model_wait = ModelWait(self, admitted.target_model, self._metrics, context)
        self._placement = DoorPlacement(
            admitted, self, context.models, context.random, now - age_seconds
        )

    # Called by the link

    def reserve(self) -> None:
        """Takes a slot, or a place in the queue."""
        door_queue(self._placement, self._context.monotonic)
        self._placement.find()

    def take_slot_now(self) -> bool:
        """Returns whether there was a free slot."""
        return self._placement.find_now()

    def use_grant(self, header_lines: bytes) -> None:
        """The request of a reservation begins to come."""
        self._admitted = msgspec.structs.replace(self._admitted, header_lines=header_lines)
        if self._granted_at is not None:
            seconds = self._context.monotonic() - self._granted_at
            door_queue(self._placement, self._context.monotonic).early.used(seconds)
            self._granted_at = None

    def add_body(self, data: bytes) -> None:
        self._body.add_unhashed(data)

    def body_ended(self) -> None:
        self.is_whole = True
        if self._placement.has_slot:
            super().placed(self._placement.instance)

    @property
    def body_bytes(self) -> int:
        return self._body.size

    def is_unused_since(self, time: float) -> bool:
        """Whether a slot was granted before `time`, and no request came."""
        return self._granted_at is not None and self._granted_at < time

    def drop(self) -> None:
        """The other node does not want the answer."""
        if self.phase is not DONE:
            self._release()

    # Called by the placement

    def placed(self, instance: RoutedInstance) -> None:
        if self.is_whole:
            super().placed(instance)
        elif self.reservation:
            self._grant(instance.instance_id)

    def grant_early(self) -> None:
        self._grant("")

    def _grant(self, instance_id: str) -> None:
        if not self._placement.is_granted:
            self._placement.is_granted = True
            self._granted_at = self._context.monotonic()
            self._connection.grant(self.reservation, instance_id)

    def no_instance_left(self) -> None:
        model = None if self._admitted.target_model is None else self.model_wait.failure
        self._release()
        self._connection.fail(self, Failure(is_begun=False, load_failure=model))

    # The end

    def _new_answer(self) -> "_DoorAnswer":
        return _DoorAnswer(self, self._connection, self._exchange)

    def fail(self, error: AwsError) -> None:
        is_begun = self._exchange.begun
        self._release()
        if is_begun:
            self._connection.break_off(self)
        else:
            failure = Failure(
                model_status=self._model_status,
                code=error.code,
                message=error.message,
                status=error.status,
                members=error.members,
            )
            self._connection.fail(self, failure)

    def fail_by_model(self, status: int, error: AwsError) -> None:
        self._model_status = status
        super().fail_by_model(status, error)

    def _release(self) -> None:
        super()._release()
        self._connection.ended(self)
        if (answer := self.__dict__.pop("_answer", None)) is not None:
            # Breaks the reference cycle: pauses of the garbage collector are long.
            answer.invocation = None

    def _answer_offline(self) -> bool:
        return False  # the caller's gateway has the same results

    def _log(self, status: int | str, answer_bytes: int) -> None: ...

    def _log_error(self, error: AwsError) -> None: ...


class _DoorExchange:
    """Stands for the exchange with the caller, which another node has."""

    begun = False
    """part of the answer is sent"""


class _DoorMetrics(RequestMetrics):
    """Counts only what the caller's gateway cannot know."""

    __slots__ = ("_real_counters",)

    def __init__(self, monotonic: Callable[[], float], counters: VariantCounters) -> None:
        super().__init__(monotonic, None)
        self._real_counters = counters

    def count_look_up(self) -> None:
        self._counters = self._real_counters
        super().count_look_up()

    def count_loading_wait(self, seconds: float) -> None:
        self._real_counters.loading_waits += 1
        self._real_counters.loading_wait_us += round(seconds * 1e6)

    def fail(self, status: int) -> None: ...

    def succeed(self) -> None: ...


class _DoorAnswer(ContainerAnswer):
    """Passes a success on as it comes; errors are worded when they are whole."""

    __slots__ = ("_connection", "_number", "_sender", "invocation")

    _exchange: _DoorExchange  # type: ignore[assignment]

    def __init__(
        self, invocation: DoorInvocation, connection: "DoorConnection", exchange: _DoorExchange
    ) -> None:
        super().__init__(exchange, b"")  # type: ignore[arg-type]
        self.invocation: DoorInvocation | None = invocation
        self._number = invocation.number
        self._connection = connection
        self._sender: BodySender | None = None

    def begin(self, status: int, headers: Headers, length: int | None) -> None:
        self.status = status
        self.headers = headers
        if self.is_success and (length is None or length > INLINE_BYTES):
            self._pass_on(length)

    def add(self, data: bytes) -> None:
        sender = self._sender
        if sender is None:
            super().add(data)
            return
        self.size += len(data)
        sender.add(data)
        if sender.is_full and self.invocation is not None:
            self.invocation.client_full()

    def give(self) -> None:
        if self._sender is not None:
            self._sender.end()
            return
        self._connection.send_large(ANSWER, self._number, self._lines, self.body, self.status)

    def _pass_on(self, length: int | None) -> None:
        self.passing = True
        self._exchange.begun = True
        number = self._number
        announced = b"" if length is None else encode_length(length)
        self._connection.send(
            encode_frame(LARGE_ANSWER, number, self._lines, announced, self.status)
        )
        self._sender = BodySender(self._connection, number, self._drained)
        self._connection.sending[number] = self._sender
        for part in self.parts:
            self._sender.add(part)
        self.parts.clear()

    def _drained(self) -> None:
        if self.invocation is not None:
            self.invocation.client_drained()

    @property
    def _lines(self) -> bytes:
        return field_lines(
            field for field in self.headers if field[0].lower().startswith(_PASSED_ON)
        )
