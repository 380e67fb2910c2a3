"""scikit-learn models: by the user's script as SageMaker has it, or a plain model file."""

import importlib.util
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagehen.errors import SagehenError, Unavailable
from sagehen.modelserver.adapters import codecs
from sagehen.modelserver.adapters.handlers import Handlers, encode_accepted
from sagehen.modelserver.adapters.media import media_type
from sagehen.modelserver.adapters.script import Scripted, find_script, load_script
from sagehen.modelserver.contract import Answer, BatchModel, CallModel, Refusal
from sagehen.modelserver.environment import Environment

__all__ = ["ModelFileMissing", "SklearnAdapter", "SklearnModel", "adapter"]

MODEL_FILES = ("model.joblib", "model.pkl", "model.pickle")


class ModelFileMissing(SagehenError):
    """The model's archive has neither a script nor a model file of a known name."""


def adapter(environment: Environment) -> "SklearnAdapter":
    """Raises Unavailable if scikit-learn is not installed."""
    if importlib.util.find_spec("sklearn") is None:
        raise Unavailable("scikit-learn is not installed: pip install 'sagehen[sklearn]'")
    return SklearnAdapter(environment)


class SklearnAdapter(Scripted):
    """Loads scikit-learn models.

    SageMaker's container requires a script with `model_fn`. Here an archive without one is served
    too, if it holds `model.joblib` or `model.pkl`.
    """

    def load(self, model_dir: Path) -> BatchModel | CallModel:
        script = find_script(model_dir, self._environment)
        if script is not None:
            handlers = Handlers(load_model_file, decode_rows, _predict, encode_accepted)
            return load_script(script, model_dir, handlers, self._environment)
        return SklearnModel(load_model_file(str(model_dir)), self._environment)


@dataclass(slots=True)
class _Array:
    """Rows as an array of shape (count, features)."""

    count: int
    values: Any


class SklearnModel:
    """A model with `predict`, in batches."""

    def __init__(self, model: Any, environment: Environment) -> None:
        self._model = model
        self._default_accept = environment.default_accept or codecs.JSON

    def decode(self, body: bytes, content_type: str) -> _Array:
        kind = media_type(content_type)
        try:
            values = decode_rows(body, kind)
        except codecs.UnsupportedFormat as problem:
            raise Refusal(415, str(problem)) from problem
        except Exception as problem:
            raise Refusal(400, f"The body is not {kind} of numbers: {problem}") from problem
        return _Array(values.shape[0], values)  # a sparse matrix has no length

    def predict(self, batch: Sequence[_Array]) -> list[Any]:
        import numpy

        if len(batch) == 1:
            return [self._predictions(batch[0].values)]
        together = self._predictions(numpy.concatenate([rows.values for rows in batch]))
        predictions, at = [], 0
        for rows in batch:
            predictions.append(together[at : at + rows.count])
            at += rows.count
        return predictions

    def _predictions(self, values: Any) -> Any:
        try:
            return self._model.predict(values)
        except ValueError as problem:  # what scikit-learn says of data it cannot take
            raise Refusal(400, f"Unable to evaluate payload provided: {problem}") from problem

    def encode(self, prediction: Any, accept: str) -> Answer:
        if not accept or accept == "*/*":
            accept = self._default_accept
        try:
            body, content_type = encode_accepted(prediction, accept)
        except codecs.UnsupportedFormat as problem:
            raise Refusal(406, str(problem)) from problem
        return Answer(200, body.encode() if isinstance(body, str) else body, content_type)

    def close(self) -> None:
        self._model = None


def load_model_file(model_dir: str) -> Any:
    """The model in `model.joblib` or `model.pkl`. Raises ModelFileMissing."""
    for name in MODEL_FILES:
        path = Path(model_dir, name)
        if path.is_file():
            return _unpickled(path)
    raise ModelFileMissing(
        "Please provide a model_fn implementation: the model's archive has no code/inference.py, "
        f"and none of {', '.join(MODEL_FILES)}."
    )


def _unpickled(path: Path) -> Any:
    if path.suffix == ".joblib":
        import joblib

        return joblib.load(path)
    with path.open("rb") as file:
        return pickle.load(file)


def decode_rows(data: Any, content_type: str) -> Any:
    """The body as a two-dimensional array; text forms in single precision."""
    import numpy

    values = codecs.decode(data, content_type)
    if values.ndim < 2:
        one_column = content_type == codecs.CSV and values.size > 1 and not _has_comma(data)
        values = values.reshape((-1, 1) if one_column else (1, -1))
    return values.astype(numpy.float32) if content_type in codecs.TEXT_TYPES else values


def _has_comma(data: Any) -> bool:
    return ("," if isinstance(data, str) else b",") in data


def _predict(data: Any, model: Any) -> Any:
    return model.predict(data)
