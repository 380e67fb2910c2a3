"""Adapters to frameworks; each imports its framework only when used."""

import importlib
from typing import cast

from sagehen.base.errors import SettingError
from sagehen.containers.modelserver.contract import Adapter
from sagehen.containers.modelserver.environment import Environment

__all__ = ["ADAPTERS", "make_adapter"]

ADAPTERS = {
    "huggingface": "sagehen.containers.modelserver.adapters.huggingface.adapter",
    "lightgbm": "sagehen.containers.modelserver.adapters.lightgbm",
    "onnx": "sagehen.containers.modelserver.adapters.onnx.adapter",
    "python": "sagehen.containers.modelserver.adapters.python",
    "pytorch": "sagehen.containers.modelserver.adapters.pytorch.adapter",
    "sklearn": "sagehen.containers.modelserver.adapters.sklearn",
    "tensorflow": "sagehen.containers.modelserver.adapters.tensorflow.adapter",
    "xgboost": "sagehen.containers.modelserver.adapters.xgboost.adapter",
}
"""Each module has a function `adapter(environment)`."""


def make_adapter(environment: Environment) -> Adapter:
    """Raises SettingError for an unknown name, Unavailable if the framework is not installed."""
    module = ADAPTERS.get(environment.adapter)
    if module is None:
        names = ", ".join(ADAPTERS)
        raise SettingError(
            f"SAGEHEN_ADAPTER is {environment.adapter!r}; it must be one of {names}."
        )
    return cast("Adapter", importlib.import_module(module).adapter(environment))
