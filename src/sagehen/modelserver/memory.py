"""Gives the memory of what was unloaded back to the system."""

import ctypes
import gc

__all__ = ["give_memory_back"]


def give_memory_back() -> None:
    """Collect cycles, then have the allocator return its free pages where it can (glibc)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
