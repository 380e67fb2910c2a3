"""Blocking work, off the event loop.

What ends a loop's rest: a hint from any thread, or time.
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["Threads", "Wake", "in_thread"]

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


class Wake:
    """Set from anywhere, waited for in one event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """Hear hints from now on, in the running event loop."""
        self._loop = asyncio.get_running_loop()

    def hint(self) -> None:
        """There may be something to do. May be called from any thread, at any time."""
        loop = self._loop
        if loop is not None:
            # It may close in this very instant; then nobody needs to be woken.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._event.set)

    def set(self) -> None:
        """As `hint`, from the event loop itself."""
        self._event.set()

    @property
    def is_set(self) -> bool:
        """There was a hint since the last `clear`."""
        return self._event.is_set()

    def clear(self) -> None:
        """What was hinted by now is about to be looked at."""
        self._event.clear()

    async def wait(self) -> None:
        await self._event.wait()

    async def rest(self, seconds: float) -> None:
        """Until woken, at most `seconds`."""
        if seconds <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
