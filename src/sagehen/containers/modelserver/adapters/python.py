"""Serves any Python model by the user's script."""

from pathlib import Path

from sagehen.containers.modelserver.adapters.script.handlers import Handlers
from sagehen.containers.modelserver.adapters.script.script import (
    CODE_FOLDER,
    Scripted,
    ScriptError,
    ScriptModel,
    find_script,
    load_script,
    misplaced_script,
)
from sagehen.containers.modelserver.adapters.shared.model_file import nested_hint
from sagehen.containers.modelserver.environment import Environment

__all__ = ["PythonAdapter", "adapter"]


def adapter(environment: Environment) -> "PythonAdapter":
    return PythonAdapter(environment)


class PythonAdapter(Scripted):
    """Loads models with `code/inference.py`."""

    def load(self, model_dir: Path) -> ScriptModel:
        script = find_script(model_dir, self._environment)
        if script is None:
            raise ScriptError(
                f"The model's archive has no {CODE_FOLDER}/{self._environment.program}: "
                "put the script with model_fn and predict_fn there."
                + nested_hint(model_dir, (f"{CODE_FOLDER}/{self._environment.program}",))
                + f" {misplaced_script(model_dir, self._environment)}".rstrip()
            )
        return load_script(script, model_dir, Handlers.of_toolkit(), self._environment)
