"""Serves XGBoost models by the user's script, with the XGBoost package for defaults."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sagehen.containers.modelserver.adapters.script.handlers import Handlers, encode_accepted
from sagehen.containers.modelserver.adapters.script.script import (
    ScriptModel,
    UserScript,
    load_script,
)
from sagehen.containers.modelserver.adapters.shared.codecs import UnsupportedFormat, media_type
from sagehen.containers.modelserver.adapters.shared.recordio import parse_recordio
from sagehen.containers.modelserver.adapters.shared.table import Table, parse_csv, parse_libsvm
from sagehen.containers.modelserver.adapters.xgboost.files import model_files
from sagehen.containers.modelserver.environment import Environment

__all__ = ["load_script_model"]

_PARSERS: dict[str, Callable[[bytes], Table]] = {
    "text/csv": parse_csv,
    "text/libsvm": parse_libsvm,
    "text/x-libsvm": parse_libsvm,
    "application/x-recordio-protobuf": parse_recordio,
}


def load_script_model(script: UserScript, model_dir: Path, environment: Environment) -> ScriptModel:
    handlers = Handlers(_load, _to_matrix, _predict, encode_accepted)
    return load_script(script, model_dir, handlers, environment)


def _load(model_dir: str) -> Any:
    """Loads the archive's first file; SageMaker requires a model_fn instead."""
    import xgboost

    content = model_files(Path(model_dir))[0].read_bytes()
    if content[:1] != b"{":
        return pickle.load(io.BytesIO(content))
    booster = xgboost.Booster({"nthread": 1})
    booster.load_model(bytearray(content))
    return booster


def _to_matrix(data: Any, content_type: str) -> Any:
    import numpy
    import xgboost

    parse = _PARSERS.get(media_type(content_type or "text/libsvm"))
    if parse is None:
        raise UnsupportedFormat(content_type)
    table = parse(data.encode() if isinstance(data, str) else data)
    cells = numpy.array(table.cells, dtype=numpy.float32).reshape(table.count, table.columns)
    return xgboost.DMatrix(cells, nthread=1)


def _predict(data: Any, model: Any) -> Any:
    return model.predict(data, validate_features=False)
