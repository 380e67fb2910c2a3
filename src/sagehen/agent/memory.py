"""How much memory processes hold. Proportional: pages that workers share are counted once."""

import contextlib
import os

import psutil

__all__ = ["machine_memory_bytes", "tree_memory_bytes"]


def machine_memory_bytes() -> int:
    """All the memory this machine has."""
    return int(psutil.virtual_memory().total)


def tree_memory_bytes(pid: int) -> int:
    """Memory of a process and its descendants; 0 where it has ended. Takes milliseconds."""
    total, waiting = 0, [pid]
    while waiting:
        process = waiting.pop()
        with contextlib.suppress(OSError, psutil.Error):
            total += _proportional_bytes(process)
            waiting += _children(process)
    return total


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as children:
                found += map(int, children.read().split())
    except FileNotFoundError:
        # A kernel without these files: psutil looks at every process of the machine instead.
        return [child.pid for child in psutil.Process(pid).children()]
    return found


def _proportional_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            for line in rollup:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return int(psutil.Process(pid).memory_info().rss)
