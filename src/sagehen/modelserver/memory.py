"""Gives the memory of what was unloaded back to the system."""

import ctypes
import gc

__all__ = ["give_memory_back", "trim"]


def give_memory_back() -> None:
    """Collect cycles, then have the allocator return its free pages where it can (glibc)."""
    gc.collect()
    trim()


def trim() -> None:
    """Have the allocator return its free pages where it can (glibc). Holds no lock of Python's."""
    returned = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if returned is not None:
        returned(0)
