"""Frameworks that are imported when a test uses them, and not when its file is collected: every
worker collects every file, and their import takes half as long as all else of that."""

import importlib
from typing import Any

__all__ = ["Late", "lightgbm", "onnx", "onnx_helper", "sparse", "xgboost"]


class Late:
    """A module, imported when something of it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            # pytest looks for such names at all that a file has.
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


lightgbm: Any = Late("lightgbm")
onnx: Any = Late("onnx")
onnx_helper: Any = Late("onnx.helper")
sparse: Any = Late("scipy.sparse")
xgboost: Any = Late("xgboost")
