"""The environment of a training script, by AWS's names."""

import json
import os
from typing import Any


class TrainingEnv:
    """Reads the SM_ variables, which the training toolkit sets."""

    def __init__(self) -> None:
        self._values = {
            name[3:].lower(): value for name, value in os.environ.items() if name.startswith("SM_")
        }

    def __getattr__(self, name: str) -> Any:
        if name == "hyperparameters":
            name = "hps"
        if name == "channel_input_dirs":
            prefix = "channel_"
            return {
                key.removeprefix(prefix): value
                for key, value in self._values.items()
                if key.startswith(prefix)
            }
        if name.startswith("_") or name not in self._values:
            raise AttributeError(f"The training environment has no {name} (SM_{name.upper()}).")
        value = self._values[name]
        try:
            return json.loads(value)
        except ValueError:
            return value


def training_env() -> TrainingEnv:
    return TrainingEnv()
