"""Ends a server's processes with their parent."""

import ctypes
import os
import signal

__all__ = ["die_with_parent"]

_PR_SET_PDEATHSIG = 1
# Loaded here, so that a child need not load it between fork and exec.
_LIBC = ctypes.CDLL(None)


def die_with_parent(parent_pid: int) -> None:
    """Makes the kernel kill this process when its parent ends.

    Call it first in a child. The parent's own `parent_pid` reveals whether it died before this
    call.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)
