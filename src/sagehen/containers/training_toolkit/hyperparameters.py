"""Hyperparameters: the toolkit's, and the user's, which become arguments."""

import json
from collections.abc import Mapping

from sagehen.containers.training_toolkit.errors import CannotRun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Parameters", "read_parameters", "to_arguments"]

PREFIX = "sagemaker_"
_TOOLKIT_NAMES = ("default_user_module_name", "_tuning_objective_metric")
_KNOWN = (
    "sagemaker_program",
    "sagemaker_submit_directory",
    "sagemaker_enable_cloudwatch_metrics",
    "sagemaker_region",
    "sagemaker_container_log_level",
    "sagemaker_job_name",
    "sagemaker_s3_output",
)


class Parameters:
    """The user's hyperparameters, and our own, which start with `sagemaker_`."""

    def __init__(self, user: "dict[str, Any]", toolkit: "dict[str, Any]") -> None:
        self.user = user
        self.toolkit = toolkit

    @property
    def of_framework(self) -> "dict[str, Any]":
        """The parameters that only some frameworks' containers know."""
        return {
            name: value
            for name, value in self.toolkit.items()
            if name not in _KNOWN and name not in _TOOLKIT_NAMES
        }

    def text(self, name: str) -> str | None:
        """Returns one of the toolkit's parameters as text; None if missing or empty."""
        value = self.toolkit.get(name)
        return str(value) if value not in (None, "") else None


def read_parameters(hyperparameters: "Mapping[str, Any]") -> Parameters:
    """Decodes JSON values. Raises CannotRun if one can be neither an argument nor a variable."""
    user: dict[str, Any] = {}
    toolkit: dict[str, Any] = {}
    for name, text in hyperparameters.items():
        if "\0" in name or "=" in name or (isinstance(text, str) and "\0" in text):
            raise CannotRun(
                f"The hyperparameter {name!r} cannot be given to a script: its name may have no "
                "'=', and neither name nor value a NUL."
            )
        is_toolkit = name.startswith(PREFIX) or name in _TOOLKIT_NAMES
        (toolkit if is_toolkit else user)[name] = _decoded(text)
    return Parameters(user, toolkit)


def to_arguments(user: "Mapping[str, Any]") -> list[str]:
    """`--name value`, or `-n value` for one-letter names, ordered by name."""
    arguments: list[str] = []
    for name in sorted(user):
        if name:
            arguments.append(f"--{name}" if len(name) > 1 else f"-{name}")
        else:
            arguments.append("")
        arguments.append(_argument(user[name]))
    return arguments


def _decoded(text: "Any") -> "Any":
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return text


def _argument(value: "Any") -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={value[name]}" for name in sorted(value))
    return "" if value is None else str(value)
