"""Rows of several requests, predicted together and split again."""

import numpy
import pytest

from sagehen.containers.modelserver.adapters.shared.arrays import (
    ArrayModel,
    decode_body,
    encode_accepted_type,
    rows_of,
    run_in_groups,
    split_rows,
)
from sagehen.containers.modelserver.adapters.shared.codecs import encode
from sagehen.containers.modelserver.contract import Refusal
from sagehen.containers.modelserver.environment import read_environment

CSV, JSON = "text/csv", "application/json"


def test_only_members_of_one_kind_run_together_and_stay_in_order() -> None:
    runs: list[list[str]] = []

    def run(members) -> list[str]:
        runs.append(list(members))
        return [member.upper() for member in members]

    assert run_in_groups(["a1", "b1", "a2"], lambda member: member[0], run) == ["A1", "B1", "A2"]
    assert runs == [["a1", "a2"], ["b1"]]


def test_rows_are_split_by_the_counts_of_the_requests() -> None:
    assert split_rows([1, 2, 3, 4], [1, 0, 3]) == [[1], [], [2, 3, 4]]


def test_requests_of_one_width_are_one_call() -> None:
    calls: list[tuple[int, ...]] = []

    def predict(values):
        calls.append(values.shape)
        return values.sum(axis=1)

    model = ArrayModel(predict, read_environment({}))
    batch = [model.decode(body, CSV) for body in (b"1,2", b"3,4\n5,6", b"1,2,3")]
    assert [list(prediction) for prediction in model.predict(batch)] == [[3], [7, 11], [6]]
    assert sorted(calls) == [(1, 3), (3, 2)]


def test_a_value_error_of_the_model_is_a_bad_request() -> None:
    def predict(values):
        raise ValueError("X has 2 features, expected 3")

    model = ArrayModel(predict, read_environment({}))
    with pytest.raises(Refusal, match="X has 2 features") as refused:
        model.predict([model.decode(b"1,2", CSV)])
    assert refused.value.status == 400


def test_a_model_that_was_closed_holds_nothing() -> None:
    model = ArrayModel(lambda values: values, read_environment({}))
    rows = model.decode(b"1", CSV)
    model.close()
    with pytest.raises(RuntimeError, match="the model was unloaded"):
        model.predict([rows])


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"1,2", "", 415),
        (b"1,2", "text/html", 415),
        (b" ", CSV, 400),
        (b"1,2\n3", CSV, 400),
        (b"{}", JSON, 400),
        (b"[]", JSON, 400),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(body, content_type, status) -> None:
    with pytest.raises(Refusal) as refused:
        decode_body(body, content_type, lambda data, kind: rows_of(data, kind, "f4"), "numbers")
    assert refused.value.status == status


def test_a_flat_list_is_one_row() -> None:
    assert rows_of(b"[1, 2]", JSON, "float32").tolist() == [[1, 2]]
    assert rows_of(b"[[1], [2]]", JSON, "float32").dtype == numpy.float32


def test_the_first_accepted_type_is_written() -> None:
    values = numpy.array([1.0, 2.0])
    assert encode_accepted_type(values, "", JSON, encode).body == b"[1.0, 2.0]"
    answer = encode_accepted_type(values, "text/html, text/csv;q=0.5", JSON, encode)
    assert (answer.content_type, answer.body.split()) == (CSV, [b"1.0", b"2.0"])
    with pytest.raises(Refusal, match="Accept type text/html is not supported") as refused:
        encode_accepted_type(values, "text/html", JSON, encode)
    assert refused.value.status == 406
