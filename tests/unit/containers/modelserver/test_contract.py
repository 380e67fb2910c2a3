"""Requests and refusals as the server, the queues and the adapters see them."""

from sagehen.containers.modelserver.contract import (
    BatchModel,
    ModelAnswer,
    ModelRequest,
    Refusal,
    RequestBatchModel,
)


class Counter:
    def __init__(self) -> None:
        self.answers = 0

    def answered(self) -> None:
        self.answers += 1


def test_a_request_is_answered_once() -> None:
    answered: list[ModelRequest] = []
    request = ModelRequest("POST", "/invocations", {}, b"", answered.append)
    request.counter = counter = Counter()
    request.respond(ModelAnswer(200, b"first"))
    request.respond(ModelAnswer(500))
    assert request.answer == ModelAnswer(200, b"first")
    assert (answered, counter.answers) == ([request], 1)


def test_a_header_that_was_not_sent_is_empty() -> None:
    request = ModelRequest("POST", "/", {b"accept": b"text/\xe9"}, b"", lambda _: None)
    assert request.header(b"accept") == "text/é"
    assert request.header(b"content-type") == ""


def test_a_refusal_is_an_answer_in_plain_text() -> None:
    answer = Refusal(406, "Not é.").answer
    assert (answer.status, answer.body) == (406, "Not é.".encode())
    assert answer.content_type == "text/plain; charset=utf-8"


def test_models_are_told_apart_by_how_they_decode() -> None:
    class Model:
        def predict(self, batch): ...
        def encode(self, prediction, accept): ...
        def close(self): ...

    class BodyModel(Model):
        def decode(self, body, content_type): ...

    class RequestModel(Model):
        def decode_request(self, request): ...

    assert isinstance(BodyModel(), BatchModel)
    assert not isinstance(BodyModel(), RequestBatchModel)
    assert isinstance(RequestModel(), RequestBatchModel)
    assert not isinstance(RequestModel(), BatchModel)
