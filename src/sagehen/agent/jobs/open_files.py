"""Whether somebody is writing a file: the kernel knows."""

import errno
import fcntl
import os
import signal
from pathlib import Path

__all__ = ["is_being_written"]


def is_being_written(path: Path) -> bool:
    """Whether a process has it open for writing, or mapped so. False where nobody can tell.

    Asked by a lease, which the kernel gives on no file that may be written. Who opens it in this
    very moment waits until the lease is given back, which is at once.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # What tells of somebody waiting: by default a signal that ends this process.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    finally:
        os.close(descriptor)
    return False
