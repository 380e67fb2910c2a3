"""Reads XGBoost model files, pickled or native, like SageMaker's container."""

import io
import logging
import pickle
import re
from pathlib import Path
from typing import Any, NamedTuple

from sagehen.base.extras import pip_install
from sagehen.containers.modelserver.adapters.shared.model_file import (
    ModelFileError,
    nested_hint,
    top_files,
)
from sagehen.containers.modelserver.adapters.xgboost.library import (
    Booster,
    BoosterError,
    Library,
)

__all__ = ["LoadedFile", "load_boosters", "model_files"]


_OLD_BINARY = b"binf"
_LIGHTGBM = b"tree\nversion="
_SERIALIZED = (b"CONFIG-offset:", b"{")
_INTERCEPTS = (3, 1)
"""The first version that writes the intercept as a list."""
_VERSION_BYTES = 40
_VERSION_IN_JSON = re.compile(rb'version"\s*:\s*\[(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\]')
_VERSION_IN_UBJSON = re.compile(rb"version\[#L.{8}[iU](.)[iU](.)[iU](.)", re.DOTALL)

log = logging.getLogger(__name__)


class LoadedFile(NamedTuple):
    """A booster; rows of pickled ones are checked more strictly."""

    booster: Booster
    pickled: bool


def load_boosters(library: Library, model_dir: Path, ensemble: bool) -> list[LoadedFile]:
    """Loads models by file name, only the first without `ensemble`.

    Raises ModelFileError or MemoryError.
    """
    paths = model_files(model_dir)
    loaded = [_load(library, path) for path in (paths if ensemble else paths[:1])]
    if len({(file.booster.features, file.booster.classes) for file in loaded}) > 1:
        raise ModelFileError(
            "The models in the archive are of different numbers of features or classes."
        )
    return loaded


def model_files(model_dir: Path) -> list[Path]:
    """The files at the archive's top, without hidden ones. Raises ModelFileError for none."""
    if not model_dir.is_dir():
        raise ModelFileError(f"There is no model folder {model_dir}.")
    paths = sorted(top_files(model_dir))
    if not paths:
        raise ModelFileError(
            "The model's archive has no model file at its top level."
            + nested_hint(model_dir, ("*",))
        )
    return paths


def _load(library: Library, path: Path) -> LoadedFile:
    content = path.read_bytes()
    if content[:1] == b"{" and not content.rstrip().endswith(b"}"):
        # The library would allocate whatever the missing lengths seem to say.
        raise ModelFileError(f"Model {path.name} cannot be loaded: the file is cut off.")
    if content.startswith(_LIGHTGBM):
        raise ModelFileError(
            f"Model {path.name} cannot be loaded: it is a LightGBM model. Deploy it with the image "
            "sagehen-lightgbm."
        )
    inside = _pickled_booster(content)
    _check_version(path.name, _version_of(inside or content), library.version)
    booster = Booster(library)
    try:
        if inside is None:
            booster.load(content)
        elif inside.startswith(_SERIALIZED):
            booster.unserialize(inside)
        else:
            booster.load(inside)  # before 1.0, a pickle had the model file's form
    except BoosterError as error:
        booster.close()
        raise ModelFileError(_cannot_load(path.name, content, inside, library, error)) from error
    return LoadedFile(booster, pickled=inside is not None)


def _cannot_load(
    name: str, content: bytes, inside: bytes | None, library: Library, error: BoosterError
) -> str:
    installed = ".".join(map(str, library.version))
    if library.version < _INTERCEPTS:
        return f"Model {name} cannot be loaded: {error}"
    if content.startswith(_OLD_BINARY):
        return (
            f"Model {name} cannot be loaded: it is in XGBoost's old binary form, which XGBoost "
            f"{installed}, installed here, does not read any more. XGBoost 3.0 does: "
            f"{pip_install('xgboost')}. Or load it with an older one and save it as JSON or UBJSON."
        )
    if inside is not None:
        return (
            f"Model {name} cannot be loaded: it is a pickled Booster, of another XGBoost "
            f"than {installed}, which is installed here, reads. XGBoost 3.0 reads the pickles of "
            f"older ones: {pip_install('xgboost')}. Or unpickle it with the XGBoost that pickled "
            "it, and save it as JSON: booster.save_model('model.json')."
        )
    return f"Model {name} cannot be loaded: {error}"


def _check_version(
    name: str, saved_by: tuple[int, int, int] | None, installed: tuple[int, int, int]
) -> None:
    """Raises ModelFileError where the library would read the model and predict wrongly."""
    if saved_by is None or saved_by[:2] <= installed[:2]:
        return
    versions = (".".join(map(str, version)) for version in (saved_by, installed))
    text = "Model {} was saved by XGBoost {}, and XGBoost {} is installed here".format(
        name, *versions
    )
    if saved_by[:2] >= _INTERCEPTS > installed[:2]:
        raise ModelFileError(
            f"{text}, which would load it and predict wrongly, as 3.1 changed how models keep "
            "their intercept. Save the model with XGBoost 3.0 or older, or install a newer one: "
            f"pip install 'xgboost-cpu>={saved_by[0]}.{saved_by[1]}' (which does not read the "
            "binary models and pickles of XGBoost 1)."
        )
    log.warning("%s.", text)


def _version_of(content: bytes) -> tuple[int, int, int] | None:
    """Reads which XGBoost saved the model; None for the old binary form, which does not say."""
    end = content[max(content.rfind(b"version"), 0) :][:_VERSION_BYTES]
    if match := _VERSION_IN_JSON.match(end):
        return int(match[1]), int(match[2]), int(match[3])
    if match := _VERSION_IN_UBJSON.match(end):
        return match[1][0], match[2][0], match[3][0]
    return None


class _Pickled:
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class _Unpickler(pickle.Unpickler):
    """Unpickles boosters without importing xgboost, which takes a second and 150 MB."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "xgboost":
            return _Pickled
        return super().find_class(module, name)


def _pickled_booster(content: bytes) -> bytes | None:
    if content[:1] == b"{":
        return None  # JSON or UBJSON
    try:
        loaded = _Unpickler(io.BytesIO(content)).load()
    except MemoryError:
        raise
    except Exception:
        return None
    state = getattr(loaded, "_Booster", loaded)
    handle = getattr(state, "handle", None)
    return bytes(handle) if isinstance(handle, bytes | bytearray) else None
