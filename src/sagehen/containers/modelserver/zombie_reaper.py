"""Reaps orphaned zombies, which the kernel hands to a container's first process."""

import asyncio
import contextlib
import os
from pathlib import Path

__all__ = ["reap_zombies"]

SCAN_SECONDS = 10.0


async def reap_zombies(pause_seconds: float = SCAN_SECONDS) -> None:
    """Reaps what two looks in a row find dead: other code waits for its own children at once."""
    seen: set[int] = set()
    while True:
        dead = _dead_children()
        _reap(seen & dead)
        seen = dead - seen
        await asyncio.sleep(pause_seconds)


def _reap(dead: set[int]) -> None:
    for pid in dead:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _dead_children() -> set[int]:
    pids = set()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            for pid in (thread / "children").read_text().split():
                stat = Path(f"/proc/{pid}/stat").read_text()
                if stat.rpartition(")")[2].split()[0] == "Z":
                    pids.add(int(pid))
    return pids
