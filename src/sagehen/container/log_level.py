"""SAGEMAKER_CONTAINER_LOG_LEVEL, as SageMaker's containers read it."""

import logging
from collections.abc import Mapping

from sagehen.errors import SettingError

__all__ = ["read_log_level"]

_LEVELS = logging.getLevelNamesMapping()


def read_log_level(environ: Mapping[str, str]) -> int:
    """From SAGEMAKER_CONTAINER_LOG_LEVEL: Python's number of a level, or its name.

    Raises SettingError.
    """
    text = environ.get("SAGEMAKER_CONTAINER_LOG_LEVEL", "").strip()
    if not text:
        return logging.INFO
    if text.isascii() and text.isdigit():
        return int(text)
    if text.upper() in _LEVELS:
        return _LEVELS[text.upper()]
    raise SettingError(
        f"SAGEMAKER_CONTAINER_LOG_LEVEL is {text!r}; it must be a number such as 20, or INFO."
    )
