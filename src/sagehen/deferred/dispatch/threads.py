"""Blocking work, off the event loop: what the object store does waits for disks and networks."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["Threads"]

T = TypeVar("T")


class Threads:
    """So many at once; more wait. Their own, so that a store that hangs holds up nobody else."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, "dispatch")

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns. When cancelled, it still goes on to its end."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
