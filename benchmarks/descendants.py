"""The processes of a side: all that came of one start, whatever they did to their parents."""

import ctypes
from contextlib import suppress

import psutil

PR_SET_CHILD_SUBREAPER = 36
END_TIMEOUT_SECONDS = 10
TRIES = 3
"""As what is killed may just have started something."""


def adopt_orphans() -> None:
    """From now on, processes below us whose parent ends become our children: none gets away."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def end_all() -> None:
    """Kill whatever is still below us."""
    for _ in range(TRIES):
        left = psutil.Process().children(recursive=True)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, END_TIMEOUT_SECONDS)


def proportional_mebibytes() -> float:
    """What all processes below us hold, what several share counted once."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total / 2**20


def resident_mebibytes() -> float:
    """What all processes below us hold, each counted by itself as `top` does."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 2**20
