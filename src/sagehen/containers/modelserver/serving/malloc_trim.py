"""Gives the memory of what was unloaded back to the system, and has the allocator be quick.

Workers import this module: it must not import asyncio.
"""

import ctypes
import gc

__all__ = ["give_memory_back", "join_freed_pieces", "trim"]

_M_MXFAST = 1


def give_memory_back() -> None:
    """Collect cycles, then have the allocator return its free pages where it can (glibc)."""
    gc.collect()
    trim()


def trim() -> None:
    """Have the allocator return its free pages where it can (glibc). Holds no lock of Python's."""
    returned = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if returned is not None:
        returned(0)


def join_freed_pieces() -> bool:
    """Have the allocator join what is freed with what is free beside it at once (glibc).

    By default it keeps small pieces apart, and joins all there are in the whole heap at every
    somewhat larger request: in a library that takes and frees a hundred pieces for a prediction
    that was 5 of 36 microseconds. Whether the allocator does so now.
    """
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    return choose is not None and bool(choose(_M_MXFAST, 0))
