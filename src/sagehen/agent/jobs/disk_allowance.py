"""The disk space of a job's host: VolumeSizeInGB."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sagehen.agent.jobs.failures import JobFailed

__all__ = ["Allowance", "used_bytes"]

GIGABYTE = 2**30
BLOCK_BYTES = 512
"""unit of st_blocks"""


class Allowance:
    """The disk space that one host may fill. Thread-safe."""

    def __init__(self, volume_gb: int) -> None:
        self._gb = volume_gb
        self.max_bytes = volume_gb * GIGABYTE
        self._charged_bytes = 0
        self._lock = threading.Lock()

    @property
    def remaining_bytes(self) -> int:
        return self.max_bytes - self._charged_bytes

    def check_inputs(self, size: int) -> None:
        """Raises JobFailed."""
        if size > self.max_bytes:
            raise JobFailed(
                f"ClientError: Data download failed:The input has {size} bytes, more than the "
                f"{self._gb} GB of its volume. Ask for a larger one (VolumeSizeInGB)."
            )

    @contextmanager
    def charge(self) -> Iterator[Callable[[int], None]]:
        """Counts written bytes; refunds all on failure."""
        charged = 0

        def add(size: int) -> None:
            nonlocal charged
            with self._lock:
                self._charged_bytes += size
            charged += size
            self.check_inputs(self._charged_bytes)

        def refund() -> None:
            with self._lock:
                self._charged_bytes -= charged

        with ExitStack() as on_failure:
            on_failure.callback(refund)
            yield add
            on_failure.pop_all()

    def check_used(self, size: int) -> None:
        """Raises JobFailed."""
        if size > self.max_bytes:
            raise JobFailed(
                f"ClientError: The job has filled its disk: {size} bytes, more than the "
                f"{self._gb} GB of its volume. Write less, or ask for a larger one "
                "(VolumeSizeInGB)."
            )


def used_bytes(folder: Path) -> int:
    """Blocks."""
    total, pending = 0, [str(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    total += _size(entry)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except OSError:
            continue  # removed, or not readable
    return total


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
    except OSError:
        return 0
