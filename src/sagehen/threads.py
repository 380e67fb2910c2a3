"""Blocking work, off the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["Threads", "in_thread"]

T = TypeVar("T")


class Threads:
    """So many at once; more wait. Their own, so that a store that hangs holds up nobody else."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, name)

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns. When cancelled, it still goes on to its end."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread; when cancelled, still wait for its end, which cannot be hurried.

    Otherwise it would go on behind the back of whoever closes the database next.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
