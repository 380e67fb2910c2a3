"""Runs blocking work in threads, waits for the first of several awaitables, and wakes an event
loop's task from any thread."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, overload

from sagehen.base.python310 import timeout

__all__ = ["Threads", "Wake", "first_of", "in_thread"]

T = TypeVar("T")
First = TypeVar("First")
Second = TypeVar("Second")


class Threads:
    """A thread pool of its own, so that a hanging store blocks nobody else."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, name)

    async def run(self, work: Callable[[], T]) -> T:
        """Cancellation does not stop `work`."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def run_to_end(self, work: Callable[[], T]) -> T:
        """Like `in_thread`."""
        return await _to_its_end(self.run(work))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


async def in_thread(work: Callable[[], T]) -> T:
    """Runs `work` in a thread; even when cancelled, waits for its end.

    Otherwise the work would go on after the caller closes the database.
    """
    return await _to_its_end(asyncio.to_thread(work))


async def _to_its_end(work: Coroutine[Any, Any, T]) -> T:
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


@overload
async def first_of(
    first: Awaitable[First], second: Awaitable[Second], /
) -> tuple[asyncio.Future[First] | None, asyncio.Future[Second] | None]: ...


@overload
async def first_of(*awaitables: Awaitable[Any]) -> tuple[asyncio.Future[Any] | None, ...]: ...


async def first_of(*awaitables: Awaitable[Any]) -> tuple[asyncio.Future[Any] | None, ...]:
    """Waits until one of `awaitables` is done; returns a done future for each that is, and None for
    each of the others.

    Coroutines that are not done are cancelled and awaited; tasks of the caller run on.
    """
    futures = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    started = [
        future
        for future, awaitable in zip(futures, awaitables, strict=True)
        if future is not awaitable
    ]
    try:
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        return tuple(future if future.done() else None for future in futures)
    finally:
        for future in started:
            future.cancel()
        await asyncio.gather(*started, return_exceptions=True)


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
            async with timeout(seconds):
                await self._event.wait()
