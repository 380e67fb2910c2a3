"""Requests and answers of Hugging Face models, without transformers."""

import json
import math

import pytest

from sagehen.containers.modelserver.adapters.huggingface.codecs import (
    decode,
    encode,
    split_parameters,
)
from sagehen.containers.modelserver.adapters.shared.codecs import UnsupportedFormat


def test_parameters_are_split_from_the_inputs() -> None:
    data = {"inputs": "text", "parameters": {"top_k": 2, "batch_size": 9}}
    assert split_parameters(data) == ("text", {"top_k": 2}), "the server chooses batches itself"
    assert split_parameters({"question": "?", "context": "."}) == (
        {"question": "?", "context": "."},
        {},
    )
    assert split_parameters(["text"]) == (["text"], {})
    with pytest.raises(ValueError, match="parameters must be an object"):
        split_parameters({"inputs": "text", "parameters": [1]})


def test_json_must_be_an_object() -> None:
    assert decode(b'{"inputs": "text"}', "application/json; charset=utf-8") == {"inputs": "text"}
    with pytest.raises(ValueError, match="must be a JSON object"):
        decode(b'["text"]', "application/json")
    with pytest.raises(ValueError, match="empty"):
        decode(b"", "application/json")
    with pytest.raises(UnsupportedFormat):
        decode(b"text", "text/plain")


def test_csv_needs_a_known_column_and_whole_rows() -> None:
    assert decode("inputs\na\nb\n", "text/csv") == {"inputs": ["a", "b"]}
    questions = decode(b'question,context\nwho?,"a, b"\n', "text/csv")
    assert questions == {"inputs": [{"question": "who?", "context": "a, b"}]}
    for body, reason in (
        ("a,b\n1,2\n", "correct CSV with Header"),
        ("inputs\n", "a header and no rows"),
        ("inputs\na, b\n", "Row 1 and the header have different numbers of fields"),
    ):
        with pytest.raises(ValueError, match=reason):
            decode(body, "text/csv")


def test_audio_goes_to_the_pipeline_as_it_is() -> None:
    assert decode(b"RIFF", "audio/wave") == {"inputs": b"RIFF"}


@pytest.mark.parametrize("accept", ["application/json", "*/*", "image/png, application/json"])
def test_the_first_type_with_an_encoder_is_written(accept: str) -> None:
    body, content_type = encode([{"label": "é", "score": 0.5}], accept)
    assert content_type == "application/json"
    assert json.loads(body) == [{"label": "é", "score": 0.5}]


def test_nan_is_refused_but_null_is_not() -> None:
    assert encode({"a": None}, "application/json")[0] == b'{"a":null}'
    with pytest.raises(ValueError, match="Out of range float values"):
        encode([math.nan], "application/json")


def test_csv_is_for_lists_of_objects() -> None:
    body, content_type = encode([{"label": "a", "score": 1}], "text/csv")
    assert (body.splitlines(), content_type) == ([b"label,score", b"a,1"], "text/csv")
    with pytest.raises(ValueError, match="Only a list of objects"):
        encode([1.0], "text/csv")
    with pytest.raises(UnsupportedFormat):
        encode([1.0], "text/html")
