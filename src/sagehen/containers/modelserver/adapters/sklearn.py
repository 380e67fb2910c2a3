"""Serves scikit-learn models by the user's script, or a plain model file."""

from pathlib import Path
from typing import Any

from sagehen.base.extras import require_library
from sagehen.containers.modelserver.adapters.script.handlers import Handlers, encode_accepted
from sagehen.containers.modelserver.adapters.script.script import ScriptAdapter, UserScript
from sagehen.containers.modelserver.adapters.shared import codecs
from sagehen.containers.modelserver.adapters.shared.arrays import ArrayModel
from sagehen.containers.modelserver.adapters.shared.model_file import (
    ModelFileError,
    nested_hint,
    top_files,
    unpickled,
)
from sagehen.containers.modelserver.adapters.shared.saved_versions import watch_saved_versions
from sagehen.containers.modelserver.contract import BatchModel
from sagehen.containers.modelserver.environment import Environment

__all__ = ["SklearnAdapter", "adapter"]

MODEL_FILES = ("model.joblib", "model.pkl", "model.pickle")


def adapter(environment: Environment) -> "SklearnAdapter":
    """Raises Unavailable if scikit-learn is not installed."""
    require_library("sklearn", "scikit-learn", "sklearn")
    watch_saved_versions()
    return SklearnAdapter(environment)


class SklearnAdapter(ScriptAdapter):
    """Loads scikit-learn models.

    SageMaker's container requires a script with `model_fn`; here `model.joblib` or `model.pkl`
    works without one.
    """

    def _handlers(self, script: UserScript) -> Handlers:
        return Handlers(load_model_file, decode_rows, _predict, encode_accepted)

    def _load_model(self, model_dir: Path) -> BatchModel:
        model = load_model_file(str(model_dir))
        if not hasattr(model, "predict"):
            (name, *_) = (
                file_name for file_name in MODEL_FILES if (model_dir / file_name).is_file()
            )
            raise ModelFileError(
                f"{name} holds a {type(model).__name__}, which has no predict method: save the "
                "model itself, or take it out in the model_fn of a code/inference.py."
            )
        return ArrayModel(model.predict, self._environment)


def load_model_file(model_dir: str) -> Any:
    """Reads `model.joblib` or `model.pkl`. Raises ModelFileError or MemoryError."""
    for name in MODEL_FILES:
        path = Path(model_dir, name)
        if path.is_file():
            return unpickled(path)
    raise _no_model(Path(model_dir))


def _no_model(model_dir: Path) -> ModelFileError:
    script = "code/inference.py"
    if (model_dir / script).is_file():
        lacks = f"{script} has no model_fn, and the model's archive none of"
    else:
        lacks = f"the model's archive has no {script}, and none of"
    names = ", ".join(sorted(path.name for path in top_files(model_dir))) or "no file"
    advice = nested_hint(model_dir, (script, *MODEL_FILES)) or (
        f" At its top there is {names}: name the model as one of these, or load it by a model_fn "
        f"in {script}."
    )
    return ModelFileError(
        f"Please provide a model_fn implementation: {lacks} {', '.join(MODEL_FILES)}.{advice}"
    )


def decode_rows(data: Any, content_type: str) -> Any:
    """Reads CSV text that is no number as NaN, like SageMaker's container."""
    import numpy

    values = codecs.decode(data, content_type)
    if values.ndim < 2:
        one_column = content_type == codecs.CSV and values.size > 1 and "," not in str(data)
        values = values.reshape((-1, 1) if one_column else (1, -1))
    return values.astype(numpy.float32) if content_type in codecs.TEXT_TYPES else values


def _predict(data: Any, model: Any) -> Any:
    return model.predict(data)
