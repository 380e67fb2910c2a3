"""TensorFlow Serving's JSON, without TensorFlow."""

import numpy
import pytest

from sagehen.containers.modelserver.adapters.shared.codecs import UnsupportedFormat
from sagehen.containers.modelserver.adapters.tensorflow.rest_json import (
    method_results,
    request_content,
    to_json,
)

JSON, CSV = "application/json", "text/csv"


@pytest.mark.parametrize(
    ("body", "content"),
    [
        (b'{"instances": [1]}', {"instances": [1]}),
        (b'{"inputs": [1]}', {"inputs": [1]}),
        (b"[[1, 2], [3, 4]]", {"instances": [[1, 2], [3, 4]]}),
        (b"[1, 2]", {"instances": [[1, 2]]}),
        (b'{"x": 1}', {"instances": [{"x": 1}]}),
        (b"[1, 2]\n[3, 4]\n", {"instances": [[1, 2], [3, 4]]}),
        (b"7", {"instances": [7]}),
    ],
)
def test_json_may_be_bare_rows_or_lines(body: bytes, content: dict) -> None:
    assert request_content(body, JSON) == content


def test_csv_is_numbers_or_text_by_how_it_begins() -> None:
    assert request_content(b"1,2\n3,4\n", CSV) == {"instances": [[1, 2], [3, 4]]}
    assert request_content(b'"a",1\n', CSV) == {"instances": [["a", 1]]}
    assert request_content(b"a,1\n", CSV) == {"instances": [["a", "1"]]}
    assert request_content(b"5\n6\n", CSV) == {"instances": [5, 6]}


@pytest.mark.parametrize(
    ("body", "content_type"), [(b" ", JSON), (b"", CSV), (b"[1", JSON), (b"1,a\n", CSV)]
)
def test_a_malformed_body_is_a_value_error(body: bytes, content_type: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        request_content(body, content_type)


def test_other_types_are_not_supported() -> None:
    with pytest.raises(UnsupportedFormat):
        request_content(b"x", "text/html")


def test_bytes_that_are_no_text_are_base64() -> None:
    assert to_json({"a": [b"text", b"\xff"]}) == '{"a": ["text", {"b64": "/w=="}]}'
    with pytest.raises(TypeError, match="set is not JSON serializable"):
        to_json({1, 2})


def test_classes_have_scores_and_regressions_are_numbers() -> None:
    scores = numpy.array([[0.25, 0.75]])
    labels = numpy.array([["cat", "dog"]], dtype=object)
    assert method_results({"scores": scores}, "classify") == [[["", 0.25], ["", 0.75]]]
    both = method_results({"scores": scores, "classes": labels}, "classify")
    assert both == [[["cat", 0.25], ["dog", 0.75]]]
    assert method_results({"outputs": numpy.array([[1.5], [2.5]])}, "regress") == [1.5, 2.5]
    with pytest.raises(ValueError, match="not those of a classifier"):
        method_results({"y": scores}, "classify")
