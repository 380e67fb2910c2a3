"""How much memory processes hold. Proportional: pages that workers share are counted once."""

import contextlib
import os
import time
from collections.abc import Callable

import psutil

from sagehen.agent.process_tree import descendants

__all__ = ["TreeMemory", "kernel_kills", "machine_memory_bytes", "tree_memory_bytes"]

EXACT_SECONDS = 1.0
"""For so long, what was shared when memory was read in full is taken as still shared."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def machine_memory_bytes() -> int:
    """All the memory this machine has."""
    return int(psutil.virtual_memory().total)


def kernel_kills() -> int:
    """How many processes the kernel has ended since its start for want of memory."""
    with contextlib.suppress(OSError), open("/proc/vmstat") as counts:
        for line in counts:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def tree_memory_bytes(pid: int) -> int:
    """Memory of a process and its descendants; 0 where it has ended. Takes milliseconds."""
    return sum(map(_proportional_bytes, descendants(pid)))


class TreeMemory:
    """The same, often: the kernel walks all pages to tell what is shared, so that is asked only
    now and then, and in between how much there is altogether."""

    def __init__(self, pid: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._pid = pid
        self._monotonic = monotonic
        self._tree: list[int] = []
        self._shared_bytes = 0
        self._exact_at = -EXACT_SECONDS

    def read(self) -> int:
        """In bytes; 0 where it has ended. Blocks for a moment."""
        tree = list(descendants(self._pid))
        resident = sum(map(_resident_bytes, tree))
        now = self._monotonic()
        if tree != self._tree or now - self._exact_at >= EXACT_SECONDS:
            exact = sum(map(_proportional_bytes, tree))
            self._tree, self._exact_at = tree, now
            self._shared_bytes = max(0, resident - exact)
        return max(0, resident - self._shared_bytes)


def _proportional_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            for line in rollup:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return _resident_bytes(pid)


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as numbers:
            return int(numbers.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
