"""Kills processes of user code that outlive their worker."""

import contextlib
import os
import signal

__all__ = ["MARK", "end_leftovers"]

MARK = "SAGEHEN_WORKER"
"""the environment variable that a worker's processes inherit, across fork and exec"""

_MOST_ROUNDS = 10


def end_leftovers(mark: str) -> None:
    """Kills processes with that mark. Takes milliseconds: scans all processes of the machine."""
    wanted = b"\0%b=%b\0" % (MARK.encode(), mark.encode())
    for _ in range(_MOST_ROUNDS):
        found = [pid for pid in _pids() if wanted in _environment(pid)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environment(pid: int) -> bytes:
    """Empty if the process has ended or belongs to another user."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"\0" + file.read()
    except OSError:
        return b""
