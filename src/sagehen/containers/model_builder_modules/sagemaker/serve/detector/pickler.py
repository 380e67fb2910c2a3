"""Loads an XGBoost model that ModelBuilder has saved as JSON."""

import importlib
from typing import Any


def load_xgboost_from_json(model_save_path: str, class_name: str) -> Any:
    """Raises ValueError."""
    module, _, name = (class_name or "").rpartition(".")
    try:
        model = getattr(importlib.import_module(module), name)()
        model.load_model(model_save_path)
    except Exception as error:
        raise ValueError(
            f"Unable to instantiate {class_name} due to {error}, please provide "
            "your custom code for loading the model with InferenceSpec"
        ) from error
    return model
