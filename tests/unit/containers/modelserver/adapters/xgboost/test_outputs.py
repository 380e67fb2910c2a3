"""Answers in the words of SageMaker's XGBoost container."""

import json
import math

import pytest

from sagehen.containers.modelserver.adapters.xgboost.outputs import (
    ACCEPTED,
    CSV,
    JSON,
    RECORDIO,
    choose_encoders,
    select_outputs,
)


def encode(scores, content_type, *, selected=False, multi_model=False) -> str:
    return choose_encoders(selected, multi_model)[content_type](scores).body.decode()


def test_scores_are_one_line_of_csv_or_one_for_each_row() -> None:
    assert encode([0.5, 1.0], CSV) == "0.5,1.0"
    assert encode([[0.5, 0.5], [0.25, 0.75]], "csv") == "0.5,0.5\n0.25,0.75"


def test_only_a_multi_model_container_answers_a_plain_list() -> None:
    assert json.loads(encode([0.5], JSON)) == {"predictions": [{"score": 0.5}]}
    assert json.loads(encode([0.5], JSON, multi_model=True)) == [0.5]
    rows = [{"labels": [0, 1]}]
    assert json.loads(encode(rows, JSON, selected=True, multi_model=True)) == {"predictions": rows}


def test_lines_of_json() -> None:
    lines = encode([0.5, 1.0], "application/jsonlines").splitlines()
    assert [json.loads(line) for line in lines] == [{"score": 0.5}, {"score": 1.0}]


def test_recordio_is_only_for_selected_outputs() -> None:
    assert RECORDIO not in choose_encoders(selected=False, multi_model=False)
    encoders = choose_encoders(selected=True, multi_model=False)
    assert encoders[RECORDIO]([{"probability": 0.5}]).content_type == RECORDIO
    assert {*ACCEPTED} <= encoders.keys()


@pytest.mark.parametrize(
    ("objective", "score", "outputs"),
    [
        ("binary:logistic", 0.75, (1, [0, 1], 0.75, [0.25, 0.75])),
        ("binary:logitraw", -2.0, (0, [0, 1], math.nan, math.nan)),
        ("multi:softprob", [0.25, 0.5, 0.25], (1, [0, 1, 2], 0.5, [0.25, 0.5, 0.25])),
        ("multi:softmax", 2.0, (2, [0, 1, 2], math.nan, math.nan)),
    ],
)
def test_what_an_objective_has_is_selected(objective: str, score, outputs: tuple) -> None:
    keys = ("predicted_label", "labels", "probability", "probabilities")
    (row,) = select_outputs([score], keys, objective, classes=3)
    assert tuple(row) == keys
    for value, expected in zip(row.values(), outputs, strict=True):
        assert value == expected or (math.isnan(value) and math.isnan(expected))


def test_a_list_is_quoted_in_csv() -> None:
    rows = select_outputs([0.75], ("labels", "predicted_label"), "binary:logistic", classes=2)
    assert encode(rows, CSV, selected=True) == '"[0, 1]",1'


def test_other_objectives_have_no_outputs() -> None:
    with pytest.raises(ValueError, match="`rank:ndcg` unsupported for selectable"):
        select_outputs([1.0], ("labels",), "rank:ndcg", classes=0)


@pytest.mark.parametrize(
    ("scores", "text"),
    [([0.5, 1.0], "0.5\n1.0\n"), ([[0.25, 0.75], [1.0, 0.0]], "0.25,0.75\n1.0,0.0\n")],
)
def test_in_a_transform_job_each_row_has_a_line(scores, text):
    encoders = choose_encoders(selected=False, multi_model=False, is_batch=True)
    assert encoders["text/csv"](scores).body.decode() == text
    assert json.loads(encoders["application/json"](scores).body)["predictions"]
