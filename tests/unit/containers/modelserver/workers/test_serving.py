"""One model in a worker, by messages that the test makes."""

from collections import deque
from pathlib import Path

import pytest

from sagehen.base.errors import SagehenError
from sagehen.containers.modelserver.contract import ModelAnswer, ModelRequest
from sagehen.containers.modelserver.serving.streaming import AHEAD_BYTES
from sagehen.containers.modelserver.workers.messages import (
    Abandon,
    Answered,
    CallMessage,
    FailedMessage,
    FromWorker,
    Load,
    LoadedMessage,
    Over,
    Piece,
    Taken,
    ToWorker,
    Unload,
    Unloaded,
)
from sagehen.containers.modelserver.workers.serving import QueueInbox, Serving

LOAD, UNLOAD = Load(1, "/models/a"), Unload(1)


class FakeInbox:
    """Has all messages from the start; noted is how often none was waited for."""

    def __init__(self, *messages: ToWorker) -> None:
        self.messages = deque(messages)

    def take(self) -> tuple[ToWorker, bytes]:
        return self.messages.popleft(), b"body"

    def poll(self) -> tuple[ToWorker, bytes] | None:
        return None


class FakeOutlet:
    def __init__(self) -> None:
        self.sent: list[tuple[FromWorker, bytes]] = []

    def send(self, message: FromWorker, body: bytes = b"") -> None:
        self.sent.append((message, body))

    @property
    def kinds(self) -> list[type]:
        return [type(message) for message, _ in self.sent]


class FakeModel:
    def __init__(self, answer) -> None:
        self.answer = answer
        self.closed = False

    def call(self, request: ModelRequest) -> ModelAnswer:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer(request)

    def close(self) -> None:
        self.closed = True


class FakeAdapter:
    def __init__(self, model) -> None:
        self.model = model

    def load(self, model_dir: Path):
        if isinstance(self.model, BaseException):
            raise self.model
        return self.model


def serve(model, *messages: ToWorker) -> FakeOutlet:
    outlet = FakeOutlet()
    inbox = FakeInbox(*messages, UNLOAD)
    Serving(FakeAdapter(model), inbox, outlet).run(LOAD)  # type: ignore[arg-type]
    return outlet


def test_a_model_is_loaded_called_and_unloaded() -> None:
    model = FakeModel(lambda request: ModelAnswer(200, request.body.upper(), "text/x"))
    outlet = serve(model, CallMessage(1, 0, {}))
    assert outlet.kinds == [LoadedMessage, Answered, Unloaded]
    assert outlet.sent[1][1] == b"BODY"
    assert model.closed


@pytest.mark.parametrize(
    ("problem", "message", "has_traceback"),
    [
        (MemoryError("no room"), "no room", True),
        (SagehenError("put it there"), "put it there", False),
        (ValueError("bad \ud800"), "bad ?", True),
        (SystemExit(3), "The model's code called sys.exit(3).", True),
    ],
)
def test_a_failed_load_is_reported_with_what_the_code_raised(
    problem, message: str, has_traceback: bool
) -> None:
    ((failed, _),) = serve(problem).sent
    assert isinstance(failed, FailedMessage)
    assert (failed.message, bool(failed.lines)) == (message, has_traceback)
    assert failed.out_of_memory is isinstance(problem, MemoryError)
    assert message in failed.summary


def test_a_model_that_batches_has_no_place_in_a_worker() -> None:
    class Batching(FakeModel):
        def decode(self, body, content_type): ...
        def predict(self, batch): ...
        def encode(self, prediction, accept): ...

    ((failed, _),) = serve(Batching(None)).sent
    assert isinstance(failed, FailedMessage)
    assert "needs_worker is True for a model that batches" in failed.message


@pytest.mark.parametrize("problem", [ValueError("bad"), SystemExit(1)])
def test_what_the_code_raises_is_an_answer(problem: BaseException) -> None:
    outlet = serve(FakeModel(problem), CallMessage(1, 0, {}))
    answered = outlet.sent[1][0]
    assert isinstance(answered, Answered)
    assert answered.status == 500
    assert outlet.kinds[-1] is Unloaded, "the worker goes on"


def test_a_header_that_cannot_be_sent_is_an_error_of_the_answer() -> None:
    answer = ModelAnswer("no status", b"")  # type: ignore[arg-type]
    outlet = serve(FakeModel(lambda _: answer), CallMessage(1, 0, {}))
    answered = outlet.sent[1][0]
    assert isinstance(answered, Answered)
    assert answered.status == 500


def streamed(*pieces: bytes):
    def answer(request: ModelRequest) -> ModelAnswer:
        rest = (piece for piece in pieces[1:])
        return ModelAnswer(200, pieces[0], rest=rest)

    return FakeModel(answer)


def test_pieces_follow_the_first_until_the_end() -> None:
    outlet = serve(streamed(b"a", b"b", b"c"), CallMessage(1, 0, {}))
    assert outlet.kinds == [LoadedMessage, Answered, Piece, Piece, Over, Unloaded]
    assert [body for _, body in outlet.sent[1:4]] == [b"a", b"b", b"c"]
    assert outlet.sent[4][0] == Over(1, whole=True)


def test_a_client_that_does_not_read_holds_the_pieces_back() -> None:
    large = bytes(AHEAD_BYTES)
    taken, other = Taken(1, 0, AHEAD_BYTES), Taken(1, 7, AHEAD_BYTES)
    outlet = serve(streamed(large, b"b"), CallMessage(1, 0, {}), other, taken)
    assert outlet.kinds[1:5] == [Answered, Piece, Over, Unloaded]
    abandoned = serve(streamed(large, b"b"), CallMessage(1, 0, {}), Abandon(1, 0))
    assert abandoned.kinds[1:4] == [Answered, Over, Unloaded]
    assert abandoned.sent[2][0] == Over(1, whole=False)


def test_a_call_that_comes_meanwhile_is_answered_afterwards() -> None:
    large = bytes(AHEAD_BYTES)
    outlet = serve(
        streamed(large, b"b"),
        CallMessage(1, 0, {}),
        CallMessage(1, 1, {}),
        Abandon(1, 0),
        Abandon(1, 1),
    )
    assert outlet.kinds == [LoadedMessage, Answered, Over, Answered, Over, Unloaded]


def test_an_inbox_that_another_thread_fills() -> None:
    inbox = QueueInbox()
    assert inbox.poll() is None
    inbox.put((UNLOAD, b""))
    assert inbox.poll() == (UNLOAD, b"")
    inbox.put((LOAD, b""))
    assert inbox.take() == (LOAD, b"")
