"""The processes of a side: all that came of one start, whatever they did to their parents."""

import ctypes
from contextlib import suppress

import psutil

PR_SET_CHILD_SUBREAPER = 36
END_TIMEOUT_SECONDS = 10
TRIES = 3
"""A killed process may just have started another one."""


def adopt_orphans() -> None:
    """Makes this process the parent of orphaned descendants, so that none escapes."""
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
    """Returns the memory of all descendants; shared pages count once."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total / 2**20


def resident_mebibytes() -> float:
    """Returns the sum of all descendants' resident memory, as `top` shows it."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 2**20
