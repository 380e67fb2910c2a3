"""TorchScript models as the PyTorch container's own `model_fn` loads them."""

from pathlib import Path
from typing import Any

from sagehen.modelserver.adapters.model_file import ModelFileError, nested_hint
from sagehen.modelserver.adapters.torch_runtime import device

__all__ = ["load_torchscript"]

MODEL_FILE = "model.pt"
SUFFIXES = (".pt", ".pth")


def load_torchscript(model_dir: str) -> Any:
    """The module in `model.pt`, or else in the only `.pt` or `.pth` file.

    Raises ModelFileError: there is not exactly one, or it is no TorchScript.
    """
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
        # Tensors alone, which no code of the file's is run for; mapped, not read.
        held = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception:  # whatever torch makes of a file that is none of its own
        return False
    return isinstance(held, dict) and any(isinstance(one, torch.Tensor) for one in held.values())


def _first_line(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0]
