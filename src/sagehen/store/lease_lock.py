"""A lock on a file, by which the controls of one machine keep each other from a lease."""

import fcntl
import logging
import os
from pathlib import Path

__all__ = ["LeaseLock"]

log = logging.getLogger(__name__)


class LeaseLock:
    """Held until `release`, or until the process ends, however it ends.

    The kernel gives it to the next at once, so that nobody needs to write down, again and again,
    that its holder lives: each such write would wait for the disk.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor: int | None = None
        self._told = False

    @property
    def is_held(self) -> bool:
        return self._descriptor is not None

    def take(self) -> bool | None:
        """Whether it is ours now; None where that cannot be said, as the file cannot be locked."""
        if self._descriptor is not None:
            return True
        try:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._cannot(error)
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            self._cannot(error)
            return None
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Let another have it. The file stays: whoever waits may have opened it already."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _cannot(self, error: OSError) -> None:
        if not self._told:
            self._told = True
            about = {"action": "lock_lease", "file": str(self._file), "reason": str(error)}
            log.warning("A lease cannot be locked and is renewed instead.", extra=about)
