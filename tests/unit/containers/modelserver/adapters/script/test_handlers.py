"""What scripts are given and what they may answer."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from sagehen.containers.modelserver.adapters.script.handlers import (
    Context,
    Handlers,
    MissingFunction,
    bytes_of,
    encode_accepted,
    is_streamed,
    iter_pieces,
    missing,
    toolkit_error,
)
from sagehen.containers.modelserver.adapters.shared.codecs import UnsupportedFormat


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context({b"content-type": b"text/csv", b"x-a": b"b"}, tmp_path / "house" / "model")


def test_a_context_has_the_requests_headers_and_the_models_folder(context: Context) -> None:
    assert context.get_request_header(0, "Content-Type") == "text/csv"
    assert context.get_request_header(0, "Accept") is None
    assert context.get_all_request_header(0) == {"content-type": "text/csv", "x-a": "b"}
    assert context.model_name == "house"
    assert context.system_properties["model_dir"].endswith("house/model")
    assert context.get_request_id() == context.get_request_id()
    assert context.request_processor == [context]


def test_a_context_sets_the_answers_status_and_headers(context: Context) -> None:
    context.set_response_header(0, "X-A", "1")
    context.set_response_header(0, "Content-Type", "text/html")
    context.set_response_status(201)
    assert (context.status, context.answer_headers) == (201, (("X-A", "1"),))
    assert context.get_response_content_type() == "text/html"
    with pytest.raises(ValueError, match="Content-Length is the server's own header"):
        context.set_response_header(0, "Content-Length", "1")
    for status in (100, 600):
        with pytest.raises(ValueError, match=f"The status is {status}; it must be from 200"):
            context.set_response_status(status)


@pytest.mark.parametrize(
    "data", ["é", b"\xc3\xa9", bytearray(b"\xc3\xa9"), memoryview(b"\xc3\xa9")]
)
def test_text_and_bytes_are_bodies(data) -> None:
    assert bytes_of(data) == "é".encode()


def test_other_answers_name_their_type() -> None:
    with pytest.raises(TypeError, match="answer is of type dict; output_fn"):
        bytes_of({})


def test_pieces_are_not_empty_and_their_source_is_closed() -> None:
    closed: list[bool] = []

    def source():
        try:
            yield from ("a", "", b"b", "c")
        finally:
            closed.append(True)

    pieces = iter_pieces(source())
    assert [next(pieces), next(pieces)] == [b"a", b"b"]
    pieces.close()
    assert closed == [True]


def test_pieces_may_come_asynchronously() -> None:
    async def source():
        for piece in ("a", "b"):
            yield piece

    assert is_streamed(source())
    assert list(iter_pieces(source())) == [b"a", b"b"]
    assert not is_streamed(["a"])


def test_the_first_type_with_an_encoder_is_written() -> None:
    assert encode_accepted([1, 2], "text/html, application/json;q=1") == (
        "[1, 2]",
        "application/json",
    )
    with pytest.raises(UnsupportedFormat):
        encode_accepted([1, 2], "text/html")


@pytest.mark.parametrize(("own", "status"), [(422, 422), (200, 500), ("x", 500), (None, 500)])
def test_an_exception_may_have_its_own_status_and_message(own, status: int) -> None:
    problem = ValueError("bad")
    problem.status_code = own  # type: ignore[attr-defined]
    problem.message = "mine"  # type: ignore[attr-defined]
    answer = toolkit_error(problem)
    assert answer.status == status
    assert answer.body.startswith(b"mine\n")


def test_a_function_without_a_default_is_asked_for_by_name() -> None:
    for function, arguments in (("model_fn", ("dir",)), ("predict_fn", ("data", "model"))):
        with pytest.raises(MissingFunction, match=f"Please provide a {function} implementation"):
            missing(function)(*arguments)


def test_a_script_is_complete_with_predict_fn_or_transform_fn() -> None:
    handlers = Handlers.of_toolkit()
    handlers.check_complete(SimpleNamespace(transform_fn=print))  # type: ignore[arg-type]
    handlers.check_complete(SimpleNamespace(predict_fn=print))  # type: ignore[arg-type]
    with pytest.raises(MissingFunction, match="predict_fn"):
        handlers.check_complete(SimpleNamespace(model_fn=print))  # type: ignore[arg-type]
    assert json.loads(handlers.output_fn([1], "application/json")[0]) == [1]
