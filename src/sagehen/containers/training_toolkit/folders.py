"""The folders below SAGEMAKER_BASE_DIR, which is `/opt/ml` in SageMaker."""

import json
import os

from sagehen.containers.training_toolkit.errors import CannotRun

TYPE_CHECKING = False  # `typing` takes longer to import than all our modules
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Folders"]


class Folders:
    """Paths as strings: a script sees them in its variables."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.code = os.path.join(base, "code")
        self.model = os.path.join(base, "model")
        self.input = os.path.join(base, "input")
        self.config = os.path.join(self.input, "config")
        self.output = os.path.join(base, "output")
        self.output_data = os.path.join(self.output, "data")
        self.output_intermediate = os.path.join(self.output, "intermediate")
        self.failure = os.path.join(self.output, "failure")

    def channel(self, name: str) -> str:
        return os.path.join(self.input, "data", name)

    def local(self, path: str) -> str:
        """Translates a user's path, whose base is `/opt/ml`, to this machine's."""
        if path.startswith("/opt/ml/"):
            return os.path.join(self.base, path.removeprefix("/opt/ml/"))
        return path

    def read_config(self, name: str) -> "dict[str, Any]":
        """Raises CannotRun if the file is missing or not a JSON object."""
        path = os.path.join(self.config, name)
        try:
            with open(path, encoding="utf-8") as file:
                read = json.load(file)
        except (OSError, ValueError) as error:
            raise CannotRun(f"/opt/ml/input/config/{name} cannot be read: {error}.") from error
        if not isinstance(read, dict):
            raise CannotRun(f"/opt/ml/input/config/{name} is not a JSON object.")
        return read

    def write_failure(self, text: str) -> None:
        """Writes the file `failure` unless the script has written its own."""
        try:
            os.makedirs(self.output, exist_ok=True)
            with open(self.failure, "x", encoding="utf-8", errors="replace") as file:
                file.write(text)
        except OSError:
            pass  # it is in the log as well
