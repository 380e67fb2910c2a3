"""Finds a model's file in its archive, and reads those that are pickles."""

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from sagehen.errors import SagehenError

__all__ = ["ModelFileError", "load_file", "one_file", "unpickled"]

T = TypeVar("T")


class ModelFileError(SagehenError):
    """A model file cannot be loaded, or there is none, or it is not clear which is meant."""


def one_file(model_dir: Path, patterns: Iterable[str], wanted: str) -> Path:
    """The one file at the archive's top that matches one of `patterns`.

    Raises ModelFileError, which says that there should be `wanted`.
    """
    files = [path for path in model_dir.iterdir() if path.is_file() and path.name[0] != "."]
    found = sorted(path for path in files if any(path.match(pattern) for pattern in patterns))
    if not found:
        names = ", ".join(sorted(path.name for path in files)) or "no file"
        raise ModelFileError(f"The model's archive needs {wanted}; at its top there is {names}.")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ModelFileError(
            f"The model's archive has several models, {names}: leave one of them, or say which "
            "to load by a code/inference.py with a model_fn."
        )
    return found[0]


def load_file(load: Callable[[Path], T], path: Path) -> T:
    """`load(path)`. Raises ModelFileError with the reason, or MemoryError."""
    try:
        return load(path)
    except (MemoryError, ModelFileError):
        raise
    except Exception as problem:
        reason = str(problem).strip() or "the file is no model, or is cut off"
        raise ModelFileError(
            f"Model {path.name} cannot be loaded: {type(problem).__name__}: {reason}"
        ) from problem


def unpickled(path: Path) -> Any:
    """What joblib or pickle wrote. Raises ModelFileError or MemoryError."""
    return load_file(_joblib if path.suffix == ".joblib" else _pickle, path)


def _joblib(path: Path) -> Any:
    import joblib

    return joblib.load(path)


def _pickle(path: Path) -> Any:
    with path.open("rb") as file:
        return pickle.load(file)
