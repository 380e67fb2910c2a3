"""Reads XGBoost model files, pickled or native, like SageMaker's container."""

import io
import pickle
from pathlib import Path
from typing import Any, NamedTuple

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
    booster = Booster(library)
    inside = _pickled_booster(content)
    try:
        if inside is not None:
            booster.unserialize(inside)
            return LoadedFile(booster, pickled=True)
        booster.load(content)
    except BoosterError as error:
        booster.close()
        if content.startswith(_OLD_BINARY):
            raise ModelFileError(
                f"Model {path.name} cannot be loaded: it is in XGBoost's old binary form, which "
                "the XGBoost installed here does not read any more. Load it with an older one and "
                "save it as JSON or UBJSON, or install an older one here: "
                "pip install 'xgboost-cpu<3.1' (which predicts wrongly with models that 3.1 and "
                "newer have saved)"
            ) from error
        if inside is not None:
            raise ModelFileError(
                f"Model {path.name} cannot be loaded: it is a pickled Booster, of another XGBoost "
                "than the one installed here reads. Unpickle it with the XGBoost that pickled it, "
                "and save it by booster.save_model('model.json'), or, before 1.0, in its binary "
                "form, which an XGBoost from 1.0 to 3.0 can load and save as JSON."
            ) from error
        raise ModelFileError(f"Model {path.name} cannot be loaded: {error}") from error
    return LoadedFile(booster, pickled=False)


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
