"""Gives the memory of what was unloaded back to the system, and has the allocator be quick.

Gives memory back beside serving: apart from `memory.py`, as workers have no event loop.
"""

import asyncio
import ctypes
import gc

__all__ = ["Trimmer", "give_memory_back", "join_freed_pieces", "trim"]

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


TRIM_SECONDS = 1.0
"""Each trimming goes through all that the process has ever allocated: milliseconds, or tens of
them, which a container whose models come and go all the time must not pay for every one."""


class Trimmer:
    """Trims soon after each `ask`, once for all that come within a second."""

    def __init__(self, seconds: float = TRIM_SECONDS) -> None:
        self._seconds = seconds
        self._trimming: asyncio.Task[None] | None = None

    def ask(self) -> None:
        if self._trimming is None:
            self._trimming = asyncio.get_running_loop().create_task(self._trim())

    async def _trim(self) -> None:
        await asyncio.sleep(self._seconds)
        self._trimming = None
        await asyncio.to_thread(trim)
