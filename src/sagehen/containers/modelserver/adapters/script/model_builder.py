"""Runs the `inference.py` that ModelBuilder of the SageMaker SDK generates, unchanged.

Such a script lies beside a `serve.pkl`. It imports the SDK, and copies the archive's `shared_libs`
to `/lib`, which is the container's own on SageMaker and may be the machine's here.
"""

import ctypes
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from sagehen.containers.aws_modules_path import MODEL_BUILDER_FOLDER

__all__ = ["prepare_model_builder"]

_PICKLE = "serve.pkl"
_SHARED_LIBRARIES = "shared_libs"
_SYSTEM_LIBRARIES = "/lib"
_MODULES_OF = {
    3: (b"sagemaker.core", b"sagemaker.serve.constants"),
    2: (b"sagemaker.base_serializers", b"sagemaker.base_deserializers"),
}
"""modules that one version of the SDK alone has, as its pickles and scripts name them"""

log = logging.getLogger(__name__)


def prepare_model_builder(script: Path) -> None:
    """Changes this process, for good, if the script is ModelBuilder's."""
    pickle = script.with_name(_PICKLE)
    if not pickle.is_file():
        return
    installed, needed = _installed_version(), _needed_version(script, pickle)
    if installed is None or needed not in (None, installed):
        _use_own_modules(installed, needed)
    import shutil  # which other scripts' workers need not wait for

    if not isinstance(shutil.copytree, _CopyTree):
        shutil.copytree = _CopyTree(shutil.copytree)


def _needed_version(script: Path, pickle: Path) -> int | None:
    """Returns None if any will do."""
    text = script.read_bytes() + pickle.read_bytes()
    versions = (version for version, names in _MODULES_OF.items() if any(n in text for n in names))
    return next(versions, None)


def _installed_version() -> int | None:
    """Finds it without an import, which takes seconds."""
    spec = importlib.util.find_spec("sagemaker")
    if spec is None or MODEL_BUILDER_FOLDER in str(spec.origin):
        return None
    folders = map(Path, spec.submodule_search_locations or ())
    return 3 if any((folder / "core").is_dir() for folder in folders) else 2


def _use_own_modules(installed: int | None, needed: int | None) -> None:
    """Puts them first: a mixture of two versions of the SDK would be neither."""
    if any(isinstance(finder, _OwnModules) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _OwnModules())
    log.info(
        "The script was made by ModelBuilder of the SageMaker SDK%s. As %s, Sagehen's own modules "
        "stand in for it; name sagemaker in requirements.txt to have the SDK itself.",
        "" if needed is None else f" {needed}",
        "it is not installed" if installed is None else f"the SDK {installed} is installed",
    )


class _OwnModules:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parents = fullname.split(".")[:-1]
        if (parents or [fullname])[0] != "sagemaker":
            return None
        return PathFinder.find_spec(fullname, [os.path.join(MODEL_BUILDER_FOLDER, *parents)])


class _CopyTree:
    """`shutil.copytree`, which loads libraries in place of copying them into the machine's own."""

    def __init__(self, copytree: Callable[..., Any]) -> None:
        self._copytree = copytree

    def __call__(self, src: Any, dst: Any, *options: Any, **named: Any) -> Any:
        if os.fspath(dst) != _SYSTEM_LIBRARIES or Path(src).name != _SHARED_LIBRARIES:
            return self._copytree(src, dst, *options, **named)
        _load_libraries(Path(src))
        return dst


def _load_libraries(folder: Path) -> None:
    """Makes them known by their names; in any order, as one may need another.

    Raises OSError.
    """
    waiting = sorted(path for path in folder.iterdir() if path.is_file())
    while waiting:
        errors: dict[Path, OSError] = {}
        for path in waiting:
            try:
                ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
            except OSError as error:
                errors[path] = error
        if len(errors) == len(waiting):
            raise next(iter(errors.values()))
        waiting = list(errors)
