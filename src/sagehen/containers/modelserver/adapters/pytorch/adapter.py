"""Serves PyTorch models: by the user's script, or TorchScript without one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagehen.containers.modelserver.adapters.pytorch.runtime import (
    device,
    inference,
    prepare,
    require,
    script_error,
)
from sagehen.containers.modelserver.adapters.pytorch.tensors import TensorCalls, rows_of
from sagehen.containers.modelserver.adapters.script.handlers import Handlers, encode_accepted
from sagehen.containers.modelserver.adapters.script.script import (
    Scripted,
    find_script,
    load_script,
)
from sagehen.containers.modelserver.adapters.shared import codecs
from sagehen.containers.modelserver.adapters.shared.arrays import read, refused
from sagehen.containers.modelserver.adapters.shared.model_file import (
    ModelFileError,
    nested_hint,
)
from sagehen.containers.modelserver.contract import BatchModel, CallModel, ModelAnswer, Refusal
from sagehen.containers.modelserver.environment import Environment

__all__ = ["TorchAdapter", "TorchModel", "adapter", "load_torchscript"]

MODEL_FILE = "model.pt"
SUFFIXES = (".pt", ".pth")


def load_torchscript(model_dir: str) -> Any:
    """Loads `model.pt`, else the only `.pt` or `.pth` file. Raises ModelFileError."""
    import torch

    path = _model_file(Path(model_dir))
    try:
        module = torch.jit.load(path, map_location=device())
    except (RuntimeError, ValueError, OSError, EOFError) as problem:
        reason = _first_line(problem)
        if _is_state_dict(path):
            reason = (
                "It holds a state_dict: the weights alone, which the model_fn gives to a model by "
                "load_state_dict."
            )
        raise ModelFileError(
            f"Failed to load {path.name}. Please ensure model is saved using torchscript, as by "
            "torch.jit.save(torch.jit.script(model), path), or bring a code/inference.py with a "
            f"model_fn. {reason}"
        ) from problem
    return module.eval()


def _model_file(folder: Path) -> Path:
    if (folder / MODEL_FILE).is_file():
        return folder / MODEL_FILE
    found = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    if len(found) == 1:
        return found[0]
    names = ", ".join(path.name for path in found) or "none"
    raise ModelFileError(
        f"Exactly one .pth or .pt file is required for PyTorch models without a model_fn in "
        f"code/inference.py; the archive has: {names}."
        + nested_hint(folder, tuple(f"*{suffix}" for suffix in SUFFIXES))
    )


def _is_state_dict(path: Path) -> bool:
    import torch

    try:
        # Loads only tensors and runs no code; maps the file.
        held = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception:  # not a file of torch's
        return False
    return isinstance(held, dict) and any(isinstance(one, torch.Tensor) for one in held.values())


def _first_line(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0]


def adapter(environment: Environment) -> "TorchAdapter":
    """Raises Unavailable if PyTorch is not installed."""
    require("torch", "PyTorch", "torch")
    if environment.multi_model:
        prepare(environment.threads)  # else the first load would wait
    return TorchAdapter(environment)


class TorchAdapter(Scripted):
    """Loads PyTorch models."""

    def load(self, model_dir: Path) -> BatchModel | CallModel:
        prepare(self._environment.threads)
        script = find_script(model_dir, self._environment)
        if script is not None:
            handlers = Handlers(load_torchscript, decode_tensor, predict, encode_tensor)
            return load_script(script, model_dir, handlers, self._environment)
        return TorchModel(load_torchscript(str(model_dir)), self._environment)


@dataclass(slots=True)
class _Tensor:
    count: int
    values: Any


class TorchModel:
    """Batches requests to a module that takes one tensor."""

    def __init__(self, module: Any, environment: Environment) -> None:
        self._calls = TensorCalls(module)
        self._default_accept = environment.default_accept or codecs.JSON

    def decode(self, body: bytes, content_type: str) -> _Tensor:
        values = read(body, content_type, decode_tensor, "numbers")
        return _Tensor(rows_of(values), values)

    def predict(self, batch: Sequence[_Tensor]) -> list[Any]:
        try:
            with inference():
                return self._calls.each([each.values for each in batch])
        except (RuntimeError, script_error()) as problem:  # unsuitable shape or type
            raise refused(_last_line(problem)) from problem

    def encode(self, prediction: Any, accept: str) -> ModelAnswer:
        if not accept or accept == "*/*":
            accept = self._default_accept
        try:
            body, content_type = encode_tensor(prediction, accept)
        except codecs.UnsupportedFormat as problem:
            raise Refusal(406, str(problem)) from problem
        except ValueError as problem:  # the format cannot express the shape
            raise Refusal(
                406,
                f"The prediction cannot be written as {accept}: {problem}. "
                f"Ask for {codecs.JSON} or {codecs.NPY}.",
            ) from problem
        return ModelAnswer(200, body.encode() if isinstance(body, str) else body, content_type)

    def close(self) -> None:
        self._calls = TensorCalls(_closed)


def decode_tensor(data: Any, content_type: str) -> Any:
    """Converts text to single precision, on the device.

    Raises UnsupportedFormat, or ValueError and the like for malformed data.
    """
    import torch

    if content_type not in (codecs.JSON, codecs.CSV, codecs.NPY):
        raise codecs.UnsupportedFormat(content_type)
    if not data:
        raise ValueError("the body is empty")
    values = codecs.decode(data, content_type)
    codecs.refuse_object(values)
    if content_type in codecs.TEXT_TYPES:
        return torch.from_numpy(values.astype("float32")).to(device())
    return torch.from_numpy(values).to(device())


def predict(data: Any, model: Any) -> Any:
    if hasattr(model, "eval"):
        model.to(device()).eval()
    with inference():
        return model(data.to(device()))


def encode_tensor(prediction: Any, accept: str) -> tuple[str | bytes, str]:
    return encode_accepted(_plain(prediction), accept)


def _plain(prediction: Any) -> Any:
    if isinstance(prediction, dict):
        return {name: _plain(member) for name, member in prediction.items()}
    if isinstance(prediction, tuple | list):
        return [_plain(member) for member in prediction]
    return prediction.tolist() if hasattr(prediction, "tolist") else prediction


def _last_line(problem: Exception) -> str:
    """The reason follows TorchScript's own traceback."""
    return str(problem).strip().rpartition("\n")[2]


def _closed(_values: Any) -> Any:
    raise RuntimeError("the model was unloaded")
