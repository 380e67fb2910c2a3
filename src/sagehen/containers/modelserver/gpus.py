"""The GPUs that a process of the model server sees, and its share of their memory."""

import logging
import sys
from collections.abc import Mapping
from typing import Any

from sagehen.base.errors import SettingError

__all__ = ["WORKER_GPU", "read_gpu_fraction", "use_gpu", "visible_gpus", "worker_gpu"]

WORKER_GPU = "SAGEHEN_WORKER_GPU"
_FRACTION = "SAGEHEN_GPU_FRACTION"

log = logging.getLogger(__name__)


def visible_gpus(environ: Mapping[str, str]) -> int:
    """Counts the GPUs of CUDA_VISIBLE_DEVICES; 0 if it is not set."""
    devices = environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return sum(device.strip() not in ("", "-1") for device in devices)


def worker_gpu(environ: Mapping[str, str]) -> int | None:
    """Returns the number of this process's GPU among the visible ones; None without any."""
    if not visible_gpus(environ):
        return None
    number = environ.get(WORKER_GPU, "")
    return int(number) if number.isdecimal() else 0


def read_gpu_fraction(environ: Mapping[str, str]) -> float | None:
    """Raises SettingError."""
    text = environ.get(_FRACTION, "").strip()
    if not text:
        return None
    try:
        fraction = float(text)
    except ValueError:
        fraction = 0.0
    if 0 < fraction <= 1:
        return fraction
    raise SettingError(f"{_FRACTION} is {text!r}; it must be above 0 and at most 1.")


def use_gpu(gpu: int | None, fraction: float | None, processes: int) -> None:
    """Sets PyTorch's GPU and the part of its memory that this process may allocate.

    Does nothing unless PyTorch is imported: scripts of other frameworks should not wait for it.

    Args:
        processes: those that share the container's fraction.
    """
    torch: Any = sys.modules.get("torch")
    if gpu is None or torch is None or not torch.cuda.is_available():
        return
    count = torch.cuda.device_count()
    if gpu < count:
        torch.cuda.set_device(gpu)
    if fraction is not None and fraction < 1:
        share = fraction / processes
        for device in range(count):
            torch.cuda.set_per_process_memory_fraction(share, device)
        log.info("PyTorch may allocate %.4g of a GPU's memory.", share)
