"""scikit-learn models: by the user's script as SageMaker has it, or a plain model file."""

import importlib.util
from pathlib import Path
from typing import Any

from sagehen.extras import missing_library
from sagehen.modelserver.adapters import codecs
from sagehen.modelserver.adapters.arrays import ArrayModel
from sagehen.modelserver.adapters.handlers import Handlers, encode_accepted
from sagehen.modelserver.adapters.model_file import ModelFileError, nested_hint, unpickled
from sagehen.modelserver.adapters.script import Scripted, find_script, load_script
from sagehen.modelserver.contract import BatchModel, CallModel
from sagehen.modelserver.environment import Environment

__all__ = ["SklearnAdapter", "adapter"]

MODEL_FILES = ("model.joblib", "model.pkl", "model.pickle")


def adapter(environment: Environment) -> "SklearnAdapter":
    """Raises Unavailable if scikit-learn is not installed."""
    if importlib.util.find_spec("sklearn") is None:
        raise missing_library("scikit-learn", "sklearn")
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
        model = load_model_file(str(model_dir))
        if not hasattr(model, "predict"):
            (name, *_) = (one for one in MODEL_FILES if (model_dir / one).is_file())
            raise ModelFileError(
                f"{name} holds a {type(model).__name__}, which has no predict method: save the "
                "model itself, or take it out in the model_fn of a code/inference.py."
            )
        return ArrayModel(model.predict, self._environment)


def load_model_file(model_dir: str) -> Any:
    """The model in `model.joblib` or `model.pkl`. Raises ModelFileError or MemoryError."""
    for name in MODEL_FILES:
        path = Path(model_dir, name)
        if path.is_file():
            return unpickled(path)
    raise ModelFileError(
        "Please provide a model_fn implementation: the model's archive has no code/inference.py, "
        f"and none of {', '.join(MODEL_FILES)}."
        + nested_hint(Path(model_dir), ("code/inference.py", *MODEL_FILES))
    )


def decode_rows(data: Any, content_type: str) -> Any:
    """As SageMaker's container reads rows for a script: what is no number in CSV is NaN."""
    import numpy

    values = codecs.decode(data, content_type)
    if values.ndim < 2:
        one_column = content_type == codecs.CSV and values.size > 1 and "," not in str(data)
        values = values.reshape((-1, 1) if one_column else (1, -1))
    return values.astype(numpy.float32) if content_type in codecs.TEXT_TYPES else values


def _predict(data: Any, model: Any) -> Any:
    return model.predict(data)
