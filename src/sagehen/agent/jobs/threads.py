"""Threads of the jobs' own for the object store: one that hangs holds up no instance."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["Threads"]

COUNT = 16

T = TypeVar("T")


class Threads:
    """So many transfers at once, of all jobs; more wait."""

    def __init__(self, count: int = COUNT) -> None:
        self._pool = ThreadPoolExecutor(count, "jobs")

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns. When cancelled, it still goes on to its end."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
