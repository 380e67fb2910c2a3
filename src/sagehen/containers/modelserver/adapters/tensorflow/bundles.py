"""Loads an archive's SavedModels or .keras file."""

import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagehen.base.errors import SagehenError
from sagehen.containers.modelserver.adapters.shared.model_file import (
    ModelFileError,
    load_file,
    one_file,
)
from sagehen.containers.modelserver.adapters.shared.named_tensors import Tensor
from sagehen.containers.modelserver.environment import TensorFlowSettings

__all__ = [
    "Bundle",
    "ModelSignature",
    "SignatureError",
    "choose",
    "import_tensorflow",
    "load_bundles",
]

_OPTIMIZERS = "keras.src.optimizers"
_importing = threading.Lock()

EXPECTED = "a SavedModel in a folder named by its version, as 1/saved_model.pb, or one file *.keras"


def import_tensorflow() -> None:
    """Imports TensorFlow without Keras, which takes half of the time and a quarter of the memory.

    TensorFlow imports Keras only for training's optimizers, and tolerates its absence. `tf.keras`
    still loads on demand.
    """
    with _importing:
        if "tensorflow" in sys.modules or _OPTIMIZERS in sys.modules:
            return
        sys.modules[_OPTIMIZERS] = None  # type: ignore[assignment]
        try:
            import tensorflow  # noqa: F401
        finally:
            del sys.modules[_OPTIMIZERS]


class SignatureError(SagehenError):
    """TensorFlow reported an error."""


class ModelSignature:
    """One function of a SavedModel."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._specs = function.structured_input_signature[1]
        self.inputs = tuple(_tensor(name, spec) for name, spec in self._specs.items())
        self.combines_rows = all(tensor.shape and tensor.shape[0] is None for tensor in self.inputs)
        """Whether one call may combine rows of several requests."""

    def run(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Raises SignatureError or MemoryError."""
        import tensorflow

        try:
            constants = {
                name: tensorflow.constant(array, self._specs[name].dtype)
                for name, array in arrays.items()
            }
            return {name: output.numpy() for name, output in self._function(**constants).items()}
        except tensorflow.errors.ResourceExhaustedError as error:
            raise MemoryError(error.message) from error
        except (tensorflow.errors.OpError, ValueError, TypeError) as error:
            reason = str(getattr(error, "message", error))
            raise SignatureError(reason.partition("\n")[0]) from error


def _tensor(name: str, spec: Any) -> Tensor:
    import numpy

    shape = None if spec.shape.rank is None else tuple(spec.shape.as_list())
    return Tensor(name, numpy.dtype(spec.dtype.as_numpy_dtype), shape)


@dataclass(frozen=True)
class Bundle:
    """One version of a model."""

    name: str
    version: int
    signatures: Mapping[str, ModelSignature]
    loaded: Any
    """Keeps the variables alive; signatures do not."""


def load_bundles(model_dir: Path, settings: TensorFlowSettings) -> list[Bundle]:
    """Sorts by name and version. Raises ModelFileError or MemoryError."""
    import_tensorflow()
    _use_threads(settings)
    versions = sorted(_saved_models(model_dir))
    keras = list(model_dir.glob("*.keras"))
    if versions and not keras:
        if len({version_folder[:2] for version_folder in versions}) < len(versions):
            raise ModelFileError("The model's archive has two models of one name and version.")
        return [_load(name, version, path) for name, version, path in versions]
    if keras and not versions:
        return [_load_keras(one_file(model_dir, ["*.keras"], EXPECTED))]
    if keras:
        raise ModelFileError(
            f"The model's archive has both {keras[0].name} and a SavedModel: leave one of them."
        )
    if (model_dir / "saved_model.pb").exists():
        raise ModelFileError(
            "The SavedModel lies at the archive's top: put it into a folder named by its version, "
            "as 1/saved_model.pb."
        )
    raise ModelFileError(f"The model's archive needs {EXPECTED}; no SavedModel bundles found!")


def _use_threads(settings: TensorFlowSettings) -> None:
    """TensorFlow accepts thread counts only before its first operation."""
    import tensorflow

    threading = tensorflow.config.threading
    if threading.get_intra_op_parallelism_threads() != settings.intra_op_threads:
        threading.set_intra_op_parallelism_threads(settings.intra_op_threads)
    if threading.get_inter_op_parallelism_threads() != settings.inter_op_threads:
        threading.set_inter_op_parallelism_threads(settings.inter_op_threads)


def _saved_models(model_dir: Path) -> Iterator[tuple[str, int, Path]]:
    for file in model_dir.rglob("saved_model.pb"):
        folder = file.parent
        if folder != model_dir and folder.name.isdecimal():
            yield folder.parent.name, int(folder.name), folder


def _load(name: str, version: int, path: Path) -> Bundle:
    import tensorflow

    loaded = load_file(lambda path: tensorflow.saved_model.load(str(path), tags="serve"), path)
    signatures = {key: ModelSignature(function) for key, function in loaded.signatures.items()}
    return Bundle(name, version, signatures, loaded)


def _load_keras(path: Path) -> Bundle:
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder, "1")
        load_file(lambda path: _export(path, exported), path)
        return _load("model", 1, exported)


def _export(path: Path, folder: Path) -> None:
    import keras

    keras.models.load_model(path, compile=False).export(str(folder), verbose=False)


def choose(bundles: Sequence[Bundle], name: str, version: str) -> Bundle | None:
    """Returns the requested or latest version."""
    versions = [
        bundle for bundle in bundles if bundle.name == name and version in ("", str(bundle.version))
    ]
    return max(versions, key=lambda bundle: bundle.version, default=None)
