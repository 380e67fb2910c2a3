"""Runs blocking work in threads, and wakes an event loop's task from any thread."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["Threads", "Wake", "in_thread"]

T = TypeVar("T")


class Threads:
    """A thread pool of its own, so that a hanging store blocks nobody else."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, name)

    async def run(self, work: Callable[[], T]) -> T:
        """Cancellation does not stop `work`."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


async def in_thread(work: Callable[[], T]) -> T:
    """Runs `work` in a thread; even when cancelled, waits for its end.

    Otherwise the work would go on after the caller closes the database.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


class Wake:
    """An event that any thread may set, and one event loop awaits."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """Binds to the running event loop; earlier hints are ignored."""
        self._loop = asyncio.get_running_loop()

    def hint(self) -> None:
        """Sets the event. Safe from any thread."""
        loop = self._loop
        if loop is not None:
            # The loop may be closing; then nobody waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._event.set)

    def set(self) -> None:
        """Like `hint`, but within the event loop."""
        self._event.set()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def clear(self) -> None:
        self._event.clear()

    async def wait(self) -> None:
        await self._event.wait()

    async def rest(self, seconds: float) -> None:
        if seconds <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
