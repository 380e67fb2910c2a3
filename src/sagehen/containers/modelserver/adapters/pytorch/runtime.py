"""What the adapters on PyTorch share: that it is there, how many threads it uses, and where."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sagehen.base.extras import missing_library

__all__ = ["device", "inference", "prepare", "require", "script_error"]

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory")
"""In messages of the GPU and of the CPU, whatever the class of the exception."""


def require(package: str, name: str, extra: str) -> None:
    """Raises Unavailable if the package is not installed, without importing it."""
    if importlib.util.find_spec(package) is None:
        raise missing_library(name, extra)


def prepare(threads: int) -> Any:
    """PyTorch, which takes seconds to import, with so many threads for one call."""
    import torch

    torch.set_num_threads(threads)
    return torch


def device() -> Any:
    """The GPU if there is one."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def inference() -> Iterator[None]:
    """For predictions. Raises MemoryError when the GPU's memory or the machine's is used up."""
    import torch

    try:
        with torch.inference_mode():
            yield
    except RuntimeError as problem:
        if any(words in str(problem) for words in _OUT_OF_MEMORY):
            raise MemoryError(str(problem)) from problem
        raise


def script_error() -> type[Exception]:
    """What TorchScript raises for a module's own exceptions."""
    import torch

    error: type[Exception] = torch.jit.Error
    return error
