"""What passes between the HTTP side, the queues and the adapters: requests, answers, models."""

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from sagehen.containers.modelserver.serving.body_budget import Reservation
from sagehen.containers.modelserver.serving.streaming import AnswerStream

__all__ = [
    "Adapter",
    "BatchModel",
    "CallModel",
    "DecodedRows",
    "JointPrediction",
    "ModelAnswer",
    "ModelRequest",
    "Refusal",
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
    """From a CallModel: what comes after `body`, made as it is iterated."""
    stream: AnswerStream | None = None
    """To the client: what is sent in the place of `body`, as it comes."""


class Refusal(Exception):
    """The request cannot be served: `status` and the sentence become the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def answer(self) -> ModelAnswer:
        return ModelAnswer(self.status, str(self).encode(), "text/plain; charset=utf-8")


class ModelRequest:
    """One HTTP request, complete, and the way back. Header names are lower-case bytes."""

    __slots__ = (
        "_on_answer",
        "abandoned",
        "answer",
        "body",
        "counter",
        "headers",
        "method",
        "path",
        "stay",
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
        self.abandoned = False  # whoever asked has gone
        self.stay: Reservation | None = None  # of a large body
        self.counter: RequestCounter | None = None  # told of the answer
        self._on_answer = on_answer

    def respond(self, answer: ModelAnswer) -> None:
        """Answer, once; called on the event loop. A second answer is dropped."""
        if self.answer is None:
            self.answer = answer
            if self.counter is not None:
                self.counter.answered()
            self._on_answer(self)

    def header(self, name: bytes) -> str:
        """The header's value, `""` if it was not sent."""
        return self.headers.get(name, b"").decode("latin-1")


class RequestCounter(Protocol):
    """Counts the requests of one model in a queue of several."""

    def answered(self) -> None:
        """Called once by each request when it has its answer."""


class DecodedRows(Protocol):
    """The rows of one request in whatever form the model takes them."""

    @property
    def count(self) -> int:
        """How many rows; what bounds a batch."""


@runtime_checkable
class BatchModel(Protocol):
    """A model that predicts the rows of many requests in one call, never two calls at once.

    One that needs more of a request than its body and its type has `decode_request(request)` too,
    which is then called in the place of `decode`.
    """

    def decode(self, body: bytes, content_type: str) -> Any:
        """The body as `DecodedRows`. Raises Refusal."""

    def predict(self, batch: Sequence[Any]) -> Sequence[Any]:
        """One prediction per member of `batch`, in its order. Raises Refusal."""

    def encode(self, prediction: Any, accept: str) -> ModelAnswer:
        """The answer to the request that `prediction` is for. Raises Refusal."""

    def close(self) -> None:
        """Free what the model holds."""


class JointPrediction(Protocol):
    """Predicts for several models in one call, never two calls at once.

    Models with the same JointPredictor as their attribute `joint` are predicted together. A
    BatchModel without the attribute, or with None, is predicted alone.
    """

    def predict_jointly(self, batch: Sequence[tuple[Any, Any]]) -> Sequence[Any]:
        """One prediction per pair of a model and its rows, in the order of `batch`.

        Raises Refusal."""


class CallModel(Protocol):
    """A model that answers one request a call. It lives in worker processes only, where one thread
    loads and calls it."""

    def call(self, request: ModelRequest) -> ModelAnswer:
        """The answer, or its first piece and `rest`; raises nothing but Refusal and MemoryError."""

    def close(self) -> None:
        """Free what the model holds."""


class Adapter(Protocol):
    """How one framework's models are loaded."""

    def needs_worker(self, model_dir: Path) -> bool:
        """Whether its model is a CallModel, to be loaded in worker processes: the user's code, and
        whatever else may crash, hold the interpreter or never come back. Runs none of it.

        Raises SagehenError if that cannot be said.
        """

    def load(self, model_dir: Path) -> BatchModel | CallModel:
        """Raises whatever the framework or the user's code raises; MemoryError if it is too big."""


class Runner(Protocol):
    """The queue before one model."""

    def submit(self, request: ModelRequest) -> None:
        """Have the request answered, now or later, or refused at once if the queue is full."""

    async def drained(self) -> None:
        """Return when everything submitted has been answered."""

    @property
    def slots(self) -> int:
        """How many requests it is good to have submitted at once; more had better wait where they
        can still go to another instance."""

    @property
    def stuck(self) -> bool:
        """Nothing gets on any more: all that work is overdue."""
