"""Reads numbers, switches and the log level from environment variables. The first set name
counts."""

import logging
from collections.abc import Mapping
from contextlib import suppress

from sagehen.base.errors import SettingError

__all__ = ["non_negative", "positive", "read_log_level", "seconds", "switch"]

_MAX_SECONDS = 10**9

_ON = ("true", "1", "yes", "on", "y", "t")
_OFF = ("false", "0", "no", "off", "n", "f")


def positive(environ: Mapping[str, str], *names: str) -> int | None:
    """A whole number above 0; None if unset. Raises SettingError."""
    name, number = _number(environ, names)
    if number == 0:
        raise SettingError(f"{name} is '0'; it must be a whole number above 0.")
    return number


def non_negative(environ: Mapping[str, str], *names: str) -> int | None:
    """A whole number from 0; None if unset. Raises SettingError."""
    return _number(environ, names)[1]


def seconds(environ: Mapping[str, str], *names: str) -> float | None:
    """A number above 0; None if unset. Raises SettingError."""
    for name in names:
        text = environ.get(name, "").strip()
        if not text:
            continue
        with suppress(ValueError):
            if 0 < float(text) < _MAX_SECONDS:
                return float(text)
        raise SettingError(f"{name} is {text!r}; it must be a number of seconds above 0.")
    return None


def switch(environ: Mapping[str, str], name: str) -> bool | None:
    """True or false; None if unset. Raises SettingError."""
    text = environ.get(name, "").strip().lower()
    if not text:
        return None
    if text in _ON or text in _OFF:
        return text in _ON
    raise SettingError(f"{name} is {text!r}; it must be true or false.")


def _number(environ: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, int | None]:
    for name in names:
        text = environ.get(name, "").strip()
        if text.isascii() and text.isdigit():
            return name, int(text)
        if text:
            raise SettingError(f"{name} is {text!r}; it must be a whole number.")
    return "", None


_LEVELS = {
    name: getattr(logging, name)
    for name in ("CRITICAL", "FATAL", "ERROR", "WARN", "WARNING", "INFO", "DEBUG", "NOTSET")
}


def read_log_level(environ: Mapping[str, str]) -> int:
    """SAGEMAKER_CONTAINER_LOG_LEVEL: a number or name of Python's. Raises SettingError."""
    text = environ.get("SAGEMAKER_CONTAINER_LOG_LEVEL", "").strip()
    if not text:
        return logging.INFO
    if text.isascii() and text.isdigit():
        return int(text)
    if text.upper() in _LEVELS:
        return int(_LEVELS[text.upper()])
    raise SettingError(
        f"SAGEMAKER_CONTAINER_LOG_LEVEL is {text!r}; it must be a number such as 20, or INFO."
    )
