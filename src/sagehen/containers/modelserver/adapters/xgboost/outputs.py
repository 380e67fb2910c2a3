"""Selects outputs by SAGEMAKER_INFERENCE_OUTPUT, like SageMaker's XGBoost container."""

from collections.abc import Callable, Sequence
from math import nan
from typing import Any

__all__ = ["select_outputs", "selected_csv"]

Score = float | list[float]

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


def selected_csv(rows: Sequence[dict[str, Any]]) -> str:
    return "\n".join(
        ",".join(f'"{value}"' if isinstance(value, list) else str(value) for value in row.values())
        for row in rows
    )


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
