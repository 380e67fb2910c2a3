"""Holds off the removal of objects' files while a backup is made.

A backup is a snapshot of the state and the files that it names. A file whose row goes after the
snapshot is needed still: while a backup holds the lock, such files go to the trash and not for
good. The kernel lets go of the lock with the process that has it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["may_remove", "removals_held_off"]


@contextmanager
def may_remove(objects: Path) -> Iterator[bool]:
    """Whether files may be removed for good until the block ends."""
    # Opened each time: threads that shared a descriptor would share, and end, each other's lock.
    descriptor = _open(objects)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


@contextmanager
def removals_held_off(objects: Path) -> Iterator[None]:
    """Wait for removals under way, and hold off others until the block ends."""
    descriptor = _open(objects)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open(objects: Path) -> int:
    return os.open(objects / "backup.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
