"""Serves LightGBM models as AWS's LightGBM algorithm (JumpStart) does."""

from functools import partial
from pathlib import Path
from typing import Any

from sagehen.base.extras import require_library
from sagehen.containers.modelserver.adapters.script.handlers import Handlers, encode_accepted
from sagehen.containers.modelserver.adapters.script.script import ScriptAdapter, UserScript
from sagehen.containers.modelserver.adapters.shared import codecs
from sagehen.containers.modelserver.adapters.shared.arrays import (
    ArrayModel,
    encode_accepted_type,
    rows_of,
)
from sagehen.containers.modelserver.adapters.shared.model_file import (
    ModelFileError,
    load_file,
    one_file,
    unpickled,
)
from sagehen.containers.modelserver.contract import BatchModel, ModelAnswer
from sagehen.containers.modelserver.environment import Environment

__all__ = ["LightGBMAdapter", "LightGBMModel", "adapter"]

MODEL_FILES = ("model.txt", "model.pkl", "model.pickle", "model.joblib", "lightgbm-model")

_ENDS = ("\nend of trees", "\nfeature importances:", "\nfeature_importances:")
"""Text after the trees, in current and older versions."""


def adapter(environment: Environment) -> "LightGBMAdapter":
    """Raises Unavailable if LightGBM is not installed."""
    require_library("lightgbm", "LightGBM", "lightgbm")
    return LightGBMAdapter(environment)


class LightGBMAdapter(ScriptAdapter):
    """Loads a text file, or a pickled Booster or scikit-learn wrapper."""

    def _handlers(self, script: UserScript) -> Handlers:
        return Handlers(load_model, _decode, _predict, encode_accepted)

    def _load_model(self, model_dir: Path) -> BatchModel:
        return LightGBMModel(load_model(str(model_dir)), self._environment)


class LightGBMModel(ArrayModel):
    """Serves a Booster or scikit-learn wrapper; only the latter names its classes."""

    def __init__(self, model: Any, environment: Environment) -> None:
        booster = getattr(model, "booster_", model)
        super().__init__(partial(_scores, booster, environment.threads), environment, "float64")
        self._classes = _classes(model, booster)

    def encode(self, prediction: Any, accept: str) -> ModelAnswer:
        if accept.replace(" ", "").lower() == "application/json;verbose":
            content = self._content(prediction, verbose=True)
            return encode_accepted_type(content, codecs.JSON, codecs.JSON, codecs.encode)
        return encode_accepted_type(prediction, accept, self._default_accept, self._written)

    def _written(self, prediction: Any, kind: str) -> str | bytes:
        if kind == codecs.JSON:
            return codecs.encode(self._content(prediction, verbose=False), kind)
        return codecs.encode(self._each_class(prediction), kind)

    def _content(self, prediction: Any, verbose: bool) -> dict[str, Any]:
        if self._classes is None:
            return {"prediction": prediction}
        probabilities = self._each_class(prediction)
        if not verbose:
            return {"probabilities": probabilities}
        predicted = [self._classes[at] for at in probabilities.argmax(axis=1)]
        return {
            "probabilities": probabilities,
            "labels": self._classes,
            "predicted_label": predicted,
        }

    def _each_class(self, prediction: Any) -> Any:
        """Adds the first of two classes: LightGBM gives only the second one's probability."""
        import numpy

        if self._classes is None or prediction.ndim > 1:
            return prediction
        return numpy.column_stack([1 - prediction, prediction])


def load_model(model_dir: str) -> Any:
    """Raises ModelFileError or MemoryError."""
    path = one_file(Path(model_dir), MODEL_FILES, "model.txt, model.pkl or model.joblib")
    model = load_file(_load_text, path) if _is_text(path) else unpickled(path)
    if not hasattr(getattr(model, "booster_", model), "num_feature"):
        raise ModelFileError(
            f"Model {path.name} is a {type(model).__name__}, not a LightGBM model: for an object "
            "that holds one, write a code/inference.py with a model_fn."
        )
    return model


def _is_text(path: Path) -> bool:
    with path.open("rb") as file:
        return path.suffix == ".txt" or file.read(5) == b"tree\n"


def _load_text(path: Path) -> Any:
    import lightgbm

    text = path.read_text(errors="replace")
    # The library would read past the end of a truncated file and crash the process.
    if not text.startswith("tree\n") or not any(end in text for end in _ENDS):
        raise ModelFileError(
            f"Model {path.name} cannot be loaded: it is not a LightGBM model, or is cut off."
        )
    return lightgbm.Booster(model_str=text)


def _classes(model: Any, booster: Any) -> list[Any] | None:
    if hasattr(model, "classes_"):
        return list(model.classes_.tolist())
    objective = str(booster.params.get("objective", ""))
    if objective.startswith("binary"):
        return [0, 1]
    if objective.startswith("multiclass"):
        return list(range(booster.num_model_per_iteration()))
    return None


def _scores(booster: Any, threads: int, rows: Any) -> Any:
    """Raises ValueError for rows that do not fit."""
    import lightgbm

    try:
        return booster.predict(rows, num_threads=threads)
    except lightgbm.basic.LightGBMError as error:
        raise ValueError(str(error).partition("\n")[0]) from error


def _decode(data: Any, content_type: str) -> Any:
    return rows_of(data, content_type, "float64")


def _predict(data: Any, model: Any) -> Any:
    return model.predict(data)
