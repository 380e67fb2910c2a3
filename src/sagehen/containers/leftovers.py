"""Kills processes of user code that outlive their worker."""

import contextlib
import os
import signal

__all__ = ["MARK", "end_leftovers"]

MARK = "SAGEHEN_WORKER"
"""the environment variable that a worker's processes inherit, across fork and exec"""

_MAX_ROUNDS = 10


def end_leftovers(mark: str) -> None:
    """Kills processes with that mark. Takes milliseconds: scans all processes of the machine."""
    entry = b"\0%b=%b\0" % (MARK.encode(), mark.encode())
    for _ in range(_MAX_ROUNDS):
        pids = [pid for pid in _pids() if entry in _read_environment(pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read_environment(pid: int) -> bytes:
    """Empty if the process has ended or belongs to another user."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"\0" + file.read()
    except OSError:
        return b""
