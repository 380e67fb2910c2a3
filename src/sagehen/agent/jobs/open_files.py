"""Whether, and how, somebody is writing a file: the kernel knows."""

import errno
import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["is_being_written", "is_only_appended_to"]


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


def is_only_appended_to(path: Path) -> bool:
    """Whether all who have it open for writing can but add to its end. False where none is found.

    Looks at the open files of all processes that may be looked at: some 10 ms.
    """
    try:
        info = path.stat()
    except OSError:
        return False
    flags = list(_writers(info.st_dev, info.st_ino))
    return bool(flags) and all(one & os.O_APPEND for one in flags)


def _writers(device: int, inode: int) -> Iterator[int]:
    """The flags of every descriptor by which a file may be written."""
    for process in _names("/proc"):
        if not process.isdigit():
            continue
        for descriptor in _names(f"/proc/{process}/fd"):
            with suppress(OSError, ValueError):
                info = os.stat(f"/proc/{process}/fd/{descriptor}")
                if (info.st_dev, info.st_ino) == (device, inode):
                    flags = _flags(f"/proc/{process}/fdinfo/{descriptor}")
                    if flags & os.O_ACCMODE != os.O_RDONLY:
                        yield flags


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _flags(path: str) -> int:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "flags":
            return int(value, 8)
    return 0
