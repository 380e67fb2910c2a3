"""How much memory processes hold. Proportional: pages that workers share are counted once."""

import contextlib

import psutil

from sagehen.agent.process_tree import descendants

__all__ = ["kernel_kills", "machine_memory_bytes", "tree_memory_bytes"]


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
    total = 0
    for process in descendants(pid):
        with contextlib.suppress(OSError, psutil.Error):
            total += _proportional_bytes(process)
    return total


def _proportional_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            for line in rollup:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return int(psutil.Process(pid).memory_info().rss)
