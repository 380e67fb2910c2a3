"""Makes sure that no process of a server outlives the one that started it."""

import ctypes
import os
import signal

__all__ = ["die_with_parent"]

_PR_SET_PDEATHSIG = 1
# Loaded here, so that a child between fork and exec need not.
_LIBC = ctypes.CDLL(None)


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends.

    Called first thing in a child. `parent_pid` is what the parent knows itself by: a parent that
    died before this call is noticed by it.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)
