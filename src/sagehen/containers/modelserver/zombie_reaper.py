"""Reaps orphaned zombies, which the kernel hands to a container's first process."""

import asyncio
import contextlib
import os
from pathlib import Path

__all__ = ["wait_for_strays"]

LOOK_SECONDS = 10.0


async def wait_for_strays(pause_seconds: float = LOOK_SECONDS) -> None:
    """Reaps what two looks in a row find dead: other code waits for its own children at once."""
    seen: set[int] = set()
    while True:
        dead = _dead_children()
        _bury(seen & dead)
        seen = dead - seen
        await asyncio.sleep(pause_seconds)


def _bury(dead: set[int]) -> None:
    for pid in dead:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _dead_children() -> set[int]:
    found = set()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            for pid in (thread / "children").read_text().split():
                stat = Path(f"/proc/{pid}/stat").read_text()
                if stat.rpartition(")")[2].split()[0] == "Z":
                    found.add(int(pid))
    return found
