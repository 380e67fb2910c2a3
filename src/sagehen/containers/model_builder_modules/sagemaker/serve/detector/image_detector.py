"""Finds out of which framework a model is."""

import importlib
from typing import Any

_FRAMEWORKS = {
    "torch": ("pytorch", "torch"),
    "xgb": ("xgboost", "xgboost"),
    "keras": ("tensorflow", "tensorflow"),
    "tensorflow": ("tensorflow", "tensorflow"),
    "sklearn": ("sklearn", "sklearn"),
}


def _detect_framework_and_version(model_base: str) -> tuple[str, str]:
    """Raises Exception for other classes, as the SDK does."""
    for part, (framework, module) in _FRAMEWORKS.items():
        if part in model_base:
            version = str(importlib.import_module(module).__version__)
            return framework, version.partition("+")[0]
    raise Exception(f"Unable to determine required container for model base {model_base}.")


def _get_model_base(model: Any) -> type:
    kind = type(model)
    if "xgboost" in kind.__module__ or kind.__base__ in (None, object):
        return kind
    return kind.__base__ or kind
