"""Holds off the removal of objects' files while a backup is made.

A backup is a snapshot of the state and the files that it names. A file whose row goes after the
snapshot is needed still: while a backup holds the lock, such files go to the trash and not for
good. The kernel lets go of the lock with the process that has it.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sagehen.errors import BackupError

__all__ = ["may_remove", "removals_held_off"]

_WAIT_SECONDS = 60.0
_LOOK_SECONDS = 0.005
"""A removal takes about as long: it is likely that one of the gaps between them is met."""


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
def removals_held_off(objects: Path, wait_seconds: float | None = None) -> Iterator[None]:
    """Wait for removals under way, and hold off others until the block ends.

    Raises:
        BackupError: there was no moment without one, or another backup is being made.
    """
    descriptor = _open(objects)
    try:
        _lock(descriptor, objects, _WAIT_SECONDS if wait_seconds is None else wait_seconds)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, objects: Path, wait_seconds: float) -> None:
    # The kernel lets those who share the lock go before: without end, if they come without end.
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BackupError(
                    f"For {wait_seconds:g} seconds files in {objects} were being removed without "
                    "a pause, or another backup was being made. Try again later."
                ) from None
            time.sleep(_LOOK_SECONDS)
        else:
            return


def _open(objects: Path) -> int:
    return os.open(objects / "backup.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
