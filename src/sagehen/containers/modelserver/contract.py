"""The Python interfaces between the HTTP server, the queues and the adapters.

The HTTP interface to the outside is `serving/container_api.py`.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from sagehen.containers.modelserver.serving.body_budget import BodyReservation
from sagehen.containers.modelserver.serving.streaming import AnswerStream

__all__ = [
    "Adapter",
    "BatchModel",
    "BatchPredictor",
    "CallModel",
    "DecodedRows",
    "JointPrediction",
    "ModelAnswer",
    "ModelRequest",
    "Refusal",
    "RequestBatchModel",
    "Runner",
]


class ModelAnswer(NamedTuple):
    """One HTTP answer."""

    status: int
    body: bytes = b""
    content_type: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    close: bool = False
    rest: Generator[bytes] | None = None
    """From a CallModel: the pieces after `body`."""
    stream: AnswerStream | None = None
    """Sent to the client instead of `body`."""


class Refusal(Exception):
    """An error whose answer has `status` and the message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def answer(self) -> ModelAnswer:
        return ModelAnswer(self.status, str(self).encode(), "text/plain; charset=utf-8")


class ModelRequest:
    """A complete HTTP request. Header names are lower-case bytes."""

    __slots__ = (
        "_on_answer",
        "abandoned",
        "answer",
        "body",
        "counter",
        "headers",
        "method",
        "path",
        "reservation",
    )

    def __init__(
        self,
        method: str,
        path: str,
        headers: Mapping[bytes, bytes],
        body: bytes,
        on_answer: "Callable[[ModelRequest], None]",
    ) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.answer: ModelAnswer | None = None
        self.abandoned = False  # client disconnected
        self.reservation: BodyReservation | None = None  # only for large bodies
        self.counter: RequestCounter | None = None
        self._on_answer = on_answer

    def respond(self, answer: ModelAnswer) -> None:
        """Answers once; drops further answers. Call on the event loop."""
        if self.answer is None:
            self.answer = answer
            if self.counter is not None:
                self.counter.answered()
            self._on_answer(self)

    def mark_begun(self) -> None:
        """Must be called on the event loop before the model may see the request: from then on it is
        never sent to another instance."""

    def header(self, name: bytes) -> str:
        """Returns `""` if the header was not sent."""
        return self.headers.get(name, b"").decode("latin-1")


class RequestCounter(Protocol):
    """Counts one model's requests in a queue shared by several models."""

    def answered(self) -> None:
        """Each request calls this when it has its answer."""


class DecodedRows(Protocol):
    """One request's rows, in the model's own form."""

    @property
    def count(self) -> int:
        """The number of rows, which bounds a batch."""


class BatchPredictor(Protocol):
    """Predicts many requests in one call; calls never overlap."""

    def predict(self, batch: Sequence[Any]) -> Sequence[Any]:
        """Returns one prediction per member, in order. Raises Refusal."""

    def encode(self, prediction: Any, accept: str) -> ModelAnswer:
        """Raises Refusal."""

    def close(self) -> None: ...


@runtime_checkable
class BatchModel(BatchPredictor, Protocol):
    """A BatchPredictor whose rows come from body and content type."""

    def decode(self, body: bytes, content_type: str) -> Any:
        """Returns `DecodedRows`. Another thread may predict meanwhile. Raises Refusal."""


@runtime_checkable
class RequestBatchModel(BatchPredictor, Protocol):
    """A BatchPredictor whose rows come from the whole request.

    A model that is also a BatchModel is used as this.
    """

    def decode_request(self, request: ModelRequest) -> Any:
        """Returns `DecodedRows`. Another thread may predict meanwhile. Raises Refusal."""


class JointPrediction(Protocol):
    """Predicts for several models in one call; calls never overlap.

    Models with the same `joint` attribute are predicted together; those without it, or with None,
    alone.
    """

    def predict_jointly(self, batch: Sequence[tuple[Any, Any]]) -> Sequence[Any]:
        """Takes pairs of model and rows; returns predictions in order. Raises Refusal."""


class CallModel(Protocol):
    """Answers one request per call, in one thread of a worker process."""

    def call(self, request: ModelRequest) -> ModelAnswer:
        """Returns the answer, or its start and `rest`. Raises only Refusal and MemoryError."""

    def close(self) -> None: ...


class Adapter(Protocol):
    """Loads the models of one framework."""

    def needs_worker(self, model_dir: Path) -> bool:
        """Whether the model is a CallModel, for worker processes: user code, or anything that may
        crash, hold the interpreter or hang.

        Runs none of it. Raises SagehenError if it cannot tell.
        """

    def load(self, model_dir: Path) -> BatchModel | CallModel:
        """Raises what the framework or user code raises, or MemoryError."""


class Runner(Protocol):
    """One model's request queue."""

    def submit(self, request: ModelRequest) -> None:
        """Queues the request, or rejects it if the queue is full."""

    async def drained(self) -> None:
        """Returns when all requests are answered."""

    @property
    def slots(self) -> int:
        """The number of requests to submit at once; others should wait where they can still go to
        another instance.
        """

    @property
    def stuck(self) -> bool:
        """Whether all work is overdue."""
