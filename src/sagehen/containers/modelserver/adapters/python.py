"""Serves any Python model by the user's script."""

from pathlib import Path
from typing import NoReturn

from sagehen.containers.modelserver.adapters.script.handlers import Handlers
from sagehen.containers.modelserver.adapters.script.script import (
    CODE_FOLDER,
    ScriptAdapter,
    ScriptError,
    UserScript,
    misplaced_script,
)
from sagehen.containers.modelserver.adapters.shared.model_file import nested_hint
from sagehen.containers.modelserver.environment import Environment

__all__ = ["PythonAdapter", "adapter"]


def adapter(environment: Environment) -> "PythonAdapter":
    return PythonAdapter(environment)


class PythonAdapter(ScriptAdapter):
    """Loads models with `code/inference.py`."""

    def _handlers(self, script: UserScript) -> Handlers:
        return Handlers.of_toolkit()

    def _load_model(self, model_dir: Path) -> NoReturn:
        raise ScriptError(
            f"The model's archive has no {CODE_FOLDER}/{self._environment.program}: "
            "put the script with model_fn and predict_fn there."
            + nested_hint(model_dir, (f"{CODE_FOLDER}/{self._environment.program}",))
            + f" {misplaced_script(model_dir, self._environment)}".rstrip()
        )
