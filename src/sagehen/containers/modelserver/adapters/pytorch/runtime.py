"""Imports and configures PyTorch for the adapters that use it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["device", "inference", "prepare", "script_error"]

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory")
"""Texts in GPU and CPU errors, whose classes vary."""


def prepare(threads: int) -> Any:
    """Imports PyTorch, which takes seconds."""
    import torch

    torch.set_num_threads(threads)
    return torch


def device() -> Any:
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def inference() -> Iterator[None]:
    """Raises MemoryError when the GPU or the machine is out of memory."""
    import torch

    try:
        with torch.inference_mode():
            yield
    except RuntimeError as error:
        if any(words in str(error) for words in _OUT_OF_MEMORY):
            raise MemoryError(str(error)) from error
        raise


def script_error() -> type[Exception]:
    """Returns TorchScript's class for exceptions of modules."""
    import torch

    error: type[Exception] = torch.jit.Error
    return error
