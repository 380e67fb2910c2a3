"""Serves PyTorch models: by the user's script, or TorchScript without one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagehen.base.extras import require_library
from sagehen.containers.modelserver.adapters.pytorch.runtime import (
    device,
    inference,
    prepare,
    script_error,
)
from sagehen.containers.modelserver.adapters.pytorch.tensors import TensorCalls, rows_of
from sagehen.containers.modelserver.adapters.script.handlers import Handlers, encode_accepted
from sagehen.containers.modelserver.adapters.script.script import ScriptAdapter, UserScript
from sagehen.containers.modelserver.adapters.shared import codecs
from sagehen.containers.modelserver.adapters.shared.arrays import decode_body, evaluation_error
from sagehen.containers.modelserver.adapters.shared.model_file import (
    ModelFileError,
    nested_hint,
)
from sagehen.containers.modelserver.contract import BatchModel, CallModel, ModelAnswer, Refusal
from sagehen.containers.modelserver.environment import Environment
from sagehen.containers.modelserver.gpus import use_gpu

__all__ = ["TorchAdapter", "TorchModel", "adapter", "load_torchscript"]

MODEL_FILE = "model.pt"
SUFFIXES = (".pt", ".pth")


def load_torchscript(model_dir: str) -> Any:
    """Loads `model.pt`, else the only `.pt` or `.pth` file. Raises ModelFileError."""
    import torch

    path = _model_file(Path(model_dir))
    try:
        module = torch.jit.load(path, map_location=device())
    except (RuntimeError, ValueError, OSError, EOFError) as error:
        reason = _first_line(error)
        if _is_state_dict(path):
            reason = (
                "The file holds a state_dict, which is weights without a model. Write a model_fn "
                "that builds the model and calls load_state_dict."
            )
        raise ModelFileError(
            f"Failed to load {path.name}. Please ensure model is saved using torchscript, as by "
            "torch.jit.save(torch.jit.script(model), path), or bring a code/inference.py with a "
            f"model_fn. {reason}"
        ) from error
    return module.eval()


def _model_file(folder: Path) -> Path:
    if (folder / MODEL_FILE).is_file():
        return folder / MODEL_FILE
    candidates = sorted(
        path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file()
    )
    if len(candidates) == 1:
        return candidates[0]
    names = ", ".join(path.name for path in candidates) or "none"
    raise ModelFileError(
        f"Exactly one .pth or .pt file is required for PyTorch models without a model_fn in "
        f"code/inference.py; the archive has: {names}."
        + nested_hint(folder, tuple(f"*{suffix}" for suffix in SUFFIXES))
    )


def _is_state_dict(path: Path) -> bool:
    import torch

    try:
        # Loads only tensors and runs no code; maps the file.
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception:  # not a file of torch's
        return False
    return isinstance(content, dict) and any(
        isinstance(value, torch.Tensor) for value in content.values()
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def adapter(environment: Environment) -> "TorchAdapter":
    """Raises Unavailable if PyTorch is not installed."""
    require_library("torch", "PyTorch", "torch")
    if environment.multi_model:
        prepare(environment.threads)  # else the first load would wait
    return TorchAdapter(environment)


class TorchAdapter(ScriptAdapter):
    """Loads PyTorch models."""

    def load(self, model_dir: Path) -> BatchModel | CallModel:
        prepare(self._environment.threads)
        return super().load(model_dir)

    def _handlers(self, script: UserScript) -> Handlers:
        return Handlers(load_torchscript, decode_tensor, predict, encode_tensor)

    def _load_model(self, model_dir: Path) -> BatchModel:
        settings = self._environment
        use_gpu(settings.gpu, settings.gpu_fraction, processes=1)
        return TorchModel(load_torchscript(str(model_dir)), self._environment)


@dataclass(slots=True)
class _Tensor:
    count: int
    values: Any


class TorchModel:
    """Batches requests to a module that takes one tensor."""

    def __init__(self, module: Any, environment: Environment) -> None:
        at = device()
        # A batch crosses to the GPU and back in one piece, not request by request.
        self._calls = TensorCalls(lambda values: _on_processor(module(values.to(at))))
        self._default_accept = environment.default_accept or codecs.JSON

    def decode(self, body: bytes, content_type: str) -> _Tensor:
        values = decode_body(body, content_type, read_tensor, "numbers")
        return _Tensor(rows_of(values), values)

    def predict(self, batch: Sequence[_Tensor]) -> list[Any]:
        try:
            with inference():
                return self._calls.call_all([tensor.values for tensor in batch])
        except (RuntimeError, script_error()) as error:  # unsuitable shape or type
            raise evaluation_error(_last_line(error)) from error

    def encode(self, prediction: Any, accept: str) -> ModelAnswer:
        accept = codecs.accepted_type(accept, self._default_accept)
        try:
            body, content_type = encode_tensor(prediction, accept)
        except codecs.UnsupportedFormat as error:
            raise Refusal(406, str(error)) from error
        except ValueError as error:  # the format cannot express the shape
            raise Refusal(
                406,
                f"The prediction cannot be written as {accept}: {error}. "
                f"Ask for {codecs.JSON} or {codecs.NPY}.",
            ) from error
        return ModelAnswer(200, body.encode() if isinstance(body, str) else body, content_type)

    def close(self) -> None:
        self._calls = TensorCalls(_closed)


def decode_tensor(data: Any, content_type: str) -> Any:
    """As `read_tensor`, on the device."""
    return read_tensor(data, content_type).to(device())


def read_tensor(data: Any, content_type: str) -> Any:
    """Converts text to single precision.

    Raises UnsupportedFormat, or ValueError and the like for malformed data.
    """
    import torch

    if content_type not in (codecs.JSON, codecs.CSV, codecs.NPY):
        raise codecs.UnsupportedFormat(content_type)
    if not data:
        raise ValueError("the body is empty")
    values = codecs.decode(data, content_type)
    codecs.reject_object(values)
    if content_type in codecs.TEXT_TYPES:
        return torch.from_numpy(values.astype("float32"))
    return torch.from_numpy(values)


def predict(data: Any, model: Any) -> Any:
    if hasattr(model, "eval"):
        model.to(device()).eval()
    with inference():
        return model(data.to(device()))


def encode_tensor(prediction: Any, accept: str) -> tuple[str | bytes, str]:
    return encode_accepted(_plain(prediction), accept)


def _on_processor(prediction: Any) -> Any:
    if isinstance(prediction, dict):
        return {name: _on_processor(member) for name, member in prediction.items()}
    if isinstance(prediction, tuple) and hasattr(prediction, "_fields"):
        return type(prediction)(*map(_on_processor, prediction))
    if isinstance(prediction, tuple | list):
        return type(prediction)(map(_on_processor, prediction))
    return prediction.cpu() if hasattr(prediction, "cpu") else prediction


def _plain(prediction: Any) -> Any:
    if isinstance(prediction, dict):
        return {name: _plain(member) for name, member in prediction.items()}
    if isinstance(prediction, tuple | list):
        return [_plain(member) for member in prediction]
    return prediction.tolist() if hasattr(prediction, "tolist") else prediction


def _last_line(error: Exception) -> str:
    """The reason follows TorchScript's own traceback."""
    return str(error).strip().rpartition("\n")[2]


def _closed(_values: Any) -> Any:
    raise RuntimeError("the model was unloaded")
