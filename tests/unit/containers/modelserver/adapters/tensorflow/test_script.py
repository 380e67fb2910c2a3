"""The handlers of TensorFlow's container, without TensorFlow."""

import json
from types import ModuleType, SimpleNamespace

import pytest

from sagehen.containers.modelserver.adapters.script.handlers import Context
from sagehen.containers.modelserver.adapters.script.script import ScriptError
from sagehen.containers.modelserver.adapters.tensorflow.script import (
    HandlerResponse,
    ScriptServing,
    read_attributes,
    resource,
    transform_of,
)
from sagehen.containers.modelserver.contract import ModelAnswer

ATTRIBUTES = b"tfs-model-name=half,tfs-model-version=2,tfs-method=regress"


class FakeModel:
    """Answers with what it was asked."""

    default_name = "model"

    def answer_rest(self, body: bytes, name: str, version: str, method: str) -> ModelAnswer:
        content = {"body": body.decode(), "asked": [name, version, method]}
        return ModelAnswer(200, json.dumps(content).encode(), "application/json")

    def versions(self, name: str, version: str) -> list[int]:
        return [1] if name == "model" else []


def module(**functions) -> ModuleType:
    return SimpleNamespace(**functions)  # type: ignore[return-value]


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> ScriptServing:
    serving = ScriptServing(FakeModel())  # type: ignore[arg-type]
    monkeypatch.setattr(serving, "_address", lambda: "http://127.0.0.1:1")
    return serving


@pytest.fixture
def context(tmp_path) -> Context:
    return Context({b"x-amzn-sagemaker-custom-attributes": ATTRIBUTES}, tmp_path)


def test_attributes_choose_model_version_and_method() -> None:
    assert read_attributes(ATTRIBUTES.decode() + ",other=1") == {
        "tfs-model-name": "half",
        "tfs-model-version": "2",
        "tfs-method": "regress",
    }
    assert resource("half", "2", "regress") == "/v1/models/half/versions/2:regress"
    assert resource("half", "", "predict") == "/v1/models/half:predict"


def test_input_and_output_handlers_surround_the_model(serving, context) -> None:
    script = module(
        input_handler=lambda body, context: {"instances": body.read().decode()},
        output_handler=lambda response, context: (response.json(), context.accept_header),
    )
    transform = transform_of(script)
    assert transform is not None
    content, accept = transform(serving, b"rows", "text/csv", "text/html", context)
    assert json.loads(content["body"]) == {"instances": "rows"}
    assert (content["asked"], accept) == (["half", "2", "regress"], "text/html")


def test_a_handler_is_given_the_rest_address(serving, context) -> None:
    transform = transform_of(module(handler=lambda body, context: context.rest_uri))
    assert transform is not None
    uri = transform(serving, b"rows", "text/csv", "", context)
    assert uri == "http://127.0.0.1:1/v1/models/half/versions/2:regress"


def test_one_handler_of_two_is_an_error() -> None:
    assert transform_of(module()) is None
    with pytest.raises(ScriptError, match="input_handler and output_handler go together"):
        transform_of(module(input_handler=print))


def test_an_exception_is_the_containers_json(serving, context) -> None:
    def handler(body, context):
        raise ValueError("bad")

    transform = transform_of(module(handler=handler))
    assert transform is not None
    answer = transform(serving, b"rows", "text/csv", "", context)
    assert answer == ('{"error": "bad"}', "application/json")
    assert context.status == 500


def test_memory_that_runs_out_is_not_answered_by_the_script(serving, context) -> None:
    def handler(body, context):
        raise MemoryError

    transform = transform_of(module(handler=handler))
    assert transform is not None
    with pytest.raises(MemoryError):
        transform(serving, b"rows", "text/csv", "", context)


def test_a_response_is_like_that_of_requests() -> None:
    fine = HandlerResponse(ModelAnswer(200, b'{"a": 1}', "application/json"))
    fine.raise_for_status()
    assert (fine.ok, fine.json(), fine.reason) == (True, {"a": 1}, "OK")
    with pytest.raises(OSError, match="404 Not Found: gone"):
        HandlerResponse(ModelAnswer(404, b"gone", "text/plain")).raise_for_status()
