"""Writes answers like SageMaker's XGBoost container: scores, or the outputs that
SAGEMAKER_INFERENCE_OUTPUT selects."""

import json
from collections.abc import Callable, Sequence
from math import nan
from typing import Any

from sagehen.containers.modelserver.adapters.shared.codecs import json_text
from sagehen.containers.modelserver.adapters.shared.number_text import compact_repr
from sagehen.containers.modelserver.adapters.shared.recordio import write_recordio
from sagehen.containers.modelserver.contract import ModelAnswer

__all__ = ["ACCEPTED", "CSV", "JSON", "RECORDIO", "choose_encoders", "select_outputs"]

CSV, JSON, JSON_LINES = "text/csv", "application/json", "application/jsonlines"
RECORDIO = "application/x-recordio-protobuf"
ACCEPTED = (JSON, JSON_LINES, CSV)
"""Also RECORDIO, if outputs are selected."""
CSV_ANSWER = "text/csv; charset=utf-8"
FEW_ROWS = 8
"""for which `repr` is quicker"""
PIECE_ROWS = 10_000
"""written by one call, in a millisecond"""

_CLASSIFICATION = {"predicted_label", "labels", "raw_score", "raw_scores"}
_PROBABILISTIC = _CLASSIFICATION | {"probability", "probabilities"}
_REGRESSION = {"predicted_score"}

KEYS_BY_OBJECTIVE: dict[str, set[str]] = {
    "reg:squarederror": _REGRESSION,
    "reg:logistic": _REGRESSION,
    "reg:gamma": _REGRESSION,
    "reg:absoluteerror": _REGRESSION,
    "reg:tweedie": _REGRESSION,
    "binary:logistic": _PROBABILISTIC,
    "binary:logitraw": _CLASSIFICATION,
    "binary:hinge": _CLASSIFICATION,
    "multi:softmax": _CLASSIFICATION,
    "multi:softprob": _PROBABILISTIC,
}


def select_outputs(
    scores: Sequence[Any], keys: Sequence[str], objective: str, classes: int
) -> list[dict[str, Any]]:
    """Returns a dict per row; keys that the objective lacks are NaN.

    Raises ValueError for objectives without selectable outputs.
    """
    possible = KEYS_BY_OBJECTIVE.get(objective)
    if possible is None:
        raise ValueError(
            f"Objective `{objective}` unsupported for selectable inference predictions."
        )
    return [
        {key: _OUTPUTS[key](score, objective, classes) if key in possible else nan for key in keys}
        for score in scores
    ]


def _predicted_label(score: Any, objective: str, _: int) -> float:
    if objective == "binary:logistic":
        return int(score > 0.5)
    if objective == "binary:logitraw":
        return int(score > 0)
    if objective == "multi:softprob":
        return int(score.index(max(score)))
    return float(score)


def _labels(_: Any, objective: str, classes: int) -> list[int]:
    return [0, 1] if objective.startswith("binary:") else list(range(classes))


def _highest(score: Any, _objective: str, _classes: int) -> float:
    return max(score) if isinstance(score, list) else float(score)


def _all(score: Any, _objective: str, _classes: int) -> list[float]:
    return score if isinstance(score, list) else [1.0 - score, score]


_OUTPUTS: dict[str, Callable[[Any, str, int], Any]] = {
    "predicted_label": _predicted_label,
    "labels": _labels,
    "probability": _highest,
    "probabilities": _all,
    "raw_score": _highest,
    "raw_scores": _all,
    "predicted_score": _highest,
}


def choose_encoders(
    selected: bool, multi_model: bool, is_batch: bool = False
) -> dict[str, Callable[[list[Any]], ModelAnswer]]:
    """Returns the encoders by content type.

    SageMaker's single-model container wraps scores in JSON objects; its multi-model container
    answers a plain list.

    Args:
        selected: the encoders take dicts of selected outputs instead of scores.
        is_batch: CSV has a line for each row, as AWS's container writes it in transform jobs.
    """
    if selected:
        return {
            **dict.fromkeys((CSV, "csv"), _selected_csv),
            **dict.fromkeys((JSON, "json"), _selected_json),
            JSON_LINES: _selected_lines,
            RECORDIO: _selected_records,
        }
    return {
        **dict.fromkeys((CSV, "csv"), _csv_lines if is_batch else _csv),
        **dict.fromkeys((JSON, "json"), _plain_json if multi_model else _scores_json),
        JSON_LINES: _lines,
    }


def _csv(scores: list[Any]) -> ModelAnswer:
    """Writes one line, or a line per row for several scores."""
    if len(scores) < FEW_ROWS and not isinstance(scores[0], list):
        return ModelAnswer(200, ",".join(map(repr, scores)).encode(), CSV_ANSWER)
    between = b"\n" if isinstance(scores[0], list) else b","
    return ModelAnswer(200, _joined(scores, between), CSV_ANSWER)


def _csv_lines(scores: list[Any]) -> ModelAnswer:
    return ModelAnswer(200, _joined(scores, b"\n") + b"\n", CSV_ANSWER)


def _joined(scores: list[Any], between: bytes) -> bytes:
    """Joins the rows, in pieces: other threads run between them."""
    pieces = [scores[at : at + PIECE_ROWS] for at in range(0, len(scores), PIECE_ROWS)]
    if isinstance(scores[0], list):
        texts = [compact_repr(piece)[2:-2].replace(b"],[", between) for piece in pieces]
    else:
        texts = [compact_repr(piece)[1:-1].replace(b",", between) for piece in pieces]
    return texts[0] if len(texts) == 1 else between.join(texts)


def _scores_json(scores: list[Any]) -> ModelAnswer:
    content = {"predictions": [{"score": score} for score in scores]}
    return ModelAnswer(200, json_text(content).encode(), JSON)


def _plain_json(scores: list[Any]) -> ModelAnswer:
    return ModelAnswer(200, json_text(scores).encode(), JSON)


def _lines(scores: list[Any]) -> ModelAnswer:
    return _selected_lines([{"score": score} for score in scores])


def _selected_csv(rows: list[Any]) -> ModelAnswer:
    text = "\n".join(
        ",".join(f'"{value}"' if isinstance(value, list) else str(value) for value in row.values())
        for row in rows
    )
    return ModelAnswer(200, text.encode(), CSV_ANSWER)


def _selected_json(rows: list[Any]) -> ModelAnswer:
    return ModelAnswer(200, json_text({"predictions": rows}).encode(), JSON)


def _selected_lines(rows: list[Any]) -> ModelAnswer:
    return ModelAnswer(200, "".join(f"{json.dumps(row)}\n" for row in rows).encode(), JSON_LINES)


def _selected_records(rows: list[Any]) -> ModelAnswer:
    records = [
        {key: value if isinstance(value, list) else [value] for key, value in row.items()}
        for row in rows
    ]
    return ModelAnswer(200, write_recordio(records), RECORDIO)
