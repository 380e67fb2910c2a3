"""Finds a model's file in its archive and reads pickles."""

import itertools
import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from sagehen.base.errors import SagehenError
from sagehen.containers.modelserver.adapters.shared.saved_versions import other_version

__all__ = ["ModelFileError", "load_file", "nested_hint", "one_file", "top_files", "unpickled"]

T = TypeVar("T")

MAX_FILES_SEARCHED = 1000
"""Limit for the search below the top."""
_CLASS_OF_MAIN = re.compile(
    r"Can't get attribute '([^']+)' on <module '(?:__main__|sagehen\.containers\.modelserver\.)"
)


class ModelFileError(SagehenError):
    """The model file is missing, ambiguous or cannot be loaded."""


def one_file(model_dir: Path, patterns: Iterable[str], expected: str) -> Path:
    """Raises ModelFileError, which names `expected`, unless one file at the top matches."""
    patterns = tuple(patterns)
    files = top_files(model_dir)
    matches = sorted(path for path in files if _matches(path, patterns))
    if not matches:
        names = ", ".join(sorted(path.name for path in files)) or "no file"
        raise ModelFileError(
            f"The model's archive needs {expected}; at its top there is {names}."
            + nested_hint(model_dir, patterns)
        )
    if len(matches) > 1:
        names = ", ".join(path.name for path in matches)
        raise ModelFileError(
            f"The model's archive has several models, {names}: leave one of them, or say which "
            "to load by a code/inference.py with a model_fn."
        )
    return matches[0]


def top_files(model_dir: Path) -> list[Path]:
    """The files at the archive's top, without hidden ones."""
    return [path for path in model_dir.iterdir() if path.is_file() and path.name[0] != "."]


def nested_hint(model_dir: Path, patterns: Iterable[str]) -> str:
    """Returns a hint if the archive contains the model's folder instead of its files, else "".

    `patterns` match paths below that folder.
    """
    patterns = tuple(patterns)
    for path in itertools.islice(_nested_files(model_dir), MAX_FILES_SEARCHED):
        if _matches(path, patterns):
            inside = path.relative_to(model_dir)
            depth = len(next(pattern for pattern in patterns if path.match(pattern)).split("/"))
            folder = Path(*inside.parts[:-depth])
            return (
                f" It has {inside}: pack from inside the folder "
                f"(tar -C {folder} -czf model.tar.gz .)."
            )
    return ""


def _nested_files(model_dir: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(model_dir):
        folders.sort()
        if Path(folder) == model_dir:
            # The code folder's files belong there.
            folders[:] = [name for name in folders if name != "code"]
        else:
            yield from (Path(folder, name) for name in sorted(files) if not name.startswith("."))


def _matches(path: Path, patterns: tuple[str, ...]) -> bool:
    return any(path.match(pattern) for pattern in patterns)


def load_file(load: Callable[[Path], T], path: Path) -> T:
    """Raises ModelFileError with the reason, or MemoryError."""
    try:
        return load(path)
    except (MemoryError, ModelFileError):
        raise
    except Exception as error:
        # The server's folder means nothing to users.
        reason = str(error).replace(f"{path.parent}/", "").strip()
        reason = reason or "the file is not a model, or is cut off"
        raise ModelFileError(
            f"Model {path.name} cannot be loaded: {type(error).__name__}: {reason}"
        ) from error


def unpickled(path: Path) -> Any:
    """Reads what joblib or pickle wrote. Raises ModelFileError or MemoryError."""
    other_version()
    try:
        return load_file(_joblib if path.suffix == ".joblib" else _pickle, path)
    except ModelFileError as error:
        if versions := other_version():
            reason = str(error).partition("\n")[0].rstrip(".:")
            raise ModelFileError(
                f'{reason}. {versions}: train it again with that, or set image_versions = "match" '
                "in sagehen.toml and use the image whose tag names the model's version."
            ) from error.__cause__
        if hint := _pickle_hint(error.__cause__):
            raise ModelFileError(f"{str(error).rstrip('.')}. {hint}") from error.__cause__
        raise


def _pickle_hint(error: BaseException | None) -> str:
    """Returns advice about missing modules, else ""."""
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        return (
            f"The model was saved with {package}, which is not installed here: name it in "
            "code/requirements.txt, beside a code/inference.py."
        )
    match = _CLASS_OF_MAIN.search(str(error)) if isinstance(error, AttributeError) else None
    if match is None:
        return ""
    name = match[1]
    return (
        f"{name} was defined in the script that saved the model, and a pickle has only its name: "
        f"put it into code/inference.py, save the model where it is imported (from inference "
        f"import {name}), and pack the folder code with the model."
    )


def _joblib(path: Path) -> Any:
    import joblib

    return joblib.load(path)


def _pickle(path: Path) -> Any:
    with path.open("rb") as file:
        return pickle.load(file)
