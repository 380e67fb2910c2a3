"""Tensors by name: rows or columns of requests, joined for a call and split again."""

import numpy
import pytest

from sagehen.containers.modelserver.adapters.shared.named_tensors import (
    COLUMNS,
    LISTS,
    ROWS,
    NamedRows,
    Tensor,
    as_tensor,
    by_column,
    by_row,
    concatenate,
    content,
    kind,
    split,
)

X = Tensor("x", numpy.dtype("float32"), (None, 2))
N = Tensor("n", numpy.dtype("int64"), (None,))
TEXT = Tensor("text", numpy.dtype(object), (None,))


def test_rows_and_columns_are_the_same() -> None:
    rows = by_row([{"x": [1, 2], "n": 3}, {"x": [4, 5], "n": 6}], [X, N], ROWS)
    columns = by_column({"x": [[1, 2], [4, 5]], "n": [3, 6]}, [X, N], COLUMNS)
    assert rows.count == columns.count == 2
    for name in ("x", "n"):
        assert rows.arrays[name].tolist() == columns.arrays[name].tolist()


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "it has no list of rows"),
        ([{"x": [1, 2]}], "each row must be an object of x, n"),
        ([{"x": [1, 2], "n": 3}, 4], "each row must be an object of x, n"),
        ([[1, 2]], "each row must be an object of x, n"),
        ([{"x": [1, 2, 3], "n": 3}], "'x' has the shape .rows, 3., and the model takes .rows, 2."),
        ([{"x": [1, 2], "n": 3.5}], "it is not all numbers of int64"),
        ([{"x": ["a", "b"], "n": 3}], "it is not all numbers of float32"),
    ],
)
def test_rows_that_do_not_fit_are_named(rows: list, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        by_row(rows, [X, N], ROWS)


def test_columns_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match="the model takes x, n, and was given x"):
        by_column({"x": [[1, 2]]}, [X, N], COLUMNS)
    with pytest.raises(ValueError, match="different numbers of rows"):
        by_column({"x": [[1, 2]], "n": [1, 2]}, [X, N], COLUMNS)


def test_a_lone_row_or_number_is_a_list_only_where_allowed() -> None:
    assert as_tensor([1, 2], X, lone=True).shape == (1, 2)
    assert as_tensor([[1], [2]], N, lone=True).tolist() == [1, 2]
    with pytest.raises(ValueError, match="has the shape"):
        as_tensor([1, 2], X)


def test_text_may_be_base64() -> None:
    assert as_tensor(["a", {"b64": "/w=="}], TEXT).tolist() == ["a", b"\xff"]
    with pytest.raises(ValueError, match="it is not all text"):
        as_tensor(["a", 1], TEXT)


def test_requests_of_one_shape_share_a_call_and_get_their_rows() -> None:
    batch = [by_column({"x": [[1, 2]]}, [X], ROWS), by_column({"x": [[3, 4], [5, 6]]}, [X], ROWS)]
    assert kind(batch[0]) == kind(batch[1])
    joined = concatenate(batch)["x"]
    parts = split({"y": joined.sum(axis=1)}, batch)
    assert parts is not None
    assert [part["y"].tolist() for part in parts] == [[3], [7, 11]]
    assert split({"y": numpy.array(7.0)}, batch) is None, "one number for all rows"


def test_an_answer_has_the_form_of_its_request() -> None:
    lone, two = {"y": numpy.array([1, 2])}, {"y": numpy.array([1, 2]), "z": numpy.array([3, 4])}
    assert content(lone, LISTS) == [1, 2]
    assert content(lone, ROWS) == {"predictions": [1, 2]}
    assert content(two, ROWS) == {"predictions": [{"y": 1, "z": 3}, {"y": 2, "z": 4}]}
    assert content(two, COLUMNS) == {"outputs": {"y": [1, 2], "z": [3, 4]}}
    uneven = {"y": numpy.array([1, 2]), "z": numpy.array(3)}
    assert content(uneven, ROWS) == {"predictions": {"y": [1, 2], "z": 3}}
    assert NamedRows(1, {}).form == LISTS
