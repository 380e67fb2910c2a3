"""One file for each framework; only that file imports it, and only when it is asked for."""

import importlib
from typing import cast

from sagehen.errors import SettingError
from sagehen.modelserver.contract import Adapter
from sagehen.modelserver.environment import Environment

__all__ = ["ADAPTERS", "make_adapter"]

ADAPTERS = {
    "huggingface": "sagehen.modelserver.adapters.huggingface",
    "lightgbm": "sagehen.modelserver.adapters.lightgbm",
    "onnx": "sagehen.modelserver.adapters.onnx",
    "python": "sagehen.modelserver.adapters.python",
    "pytorch": "sagehen.modelserver.adapters.pytorch",
    "sklearn": "sagehen.modelserver.adapters.sklearn",
    "tensorflow": "sagehen.modelserver.adapters.tensorflow",
    "xgboost": "sagehen.modelserver.adapters.xgboost",
}
"""The module of each adapter, which has a function `adapter(environment)`."""


def make_adapter(environment: Environment) -> Adapter:
    """The adapter the environment names.

    Raises:
        SettingError: there is none of that name.
        Unavailable: its framework is not installed; the message says how to install it.
    """
    module = ADAPTERS.get(environment.adapter)
    if module is None:
        known = ", ".join(ADAPTERS)
        raise SettingError(f"SAGEHEN_ADAPTER is {environment.adapter!r}; there are: {known}.")
    return cast("Adapter", importlib.import_module(module).adapter(environment))
