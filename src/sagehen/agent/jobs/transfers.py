"""What one job does with the object store: in threads, again while that is away, until it ends."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from sagehen.agent.folders import is_disk_full
from sagehen.agent.jobs.failures import JobLost
from sagehen.agent.jobs.room_wait import RoomWait
from sagehen.clock import Clock
from sagehen.errors import SagehenError, StateFull
from sagehen.objects import ObjectStore
from sagehen.objects.faults import StorageFull
from sagehen.patience import Patience, away_errors
from sagehen.threads import Threads

__all__ = ["DiskFull", "Halted", "Transfers"]

AT_ONCE = 8
"""Of one job."""
HANGS_SECONDS = 5.0
"""The store's client tries again by itself, for minutes; nobody else is to wait for that."""

T = TypeVar("T")
Item = TypeVar("Item")


class Halted(SagehenError):
    """The job is over: what a thread still does for it is of no use."""


class DiskFull(SagehenError):
    """There is no room for a job's files, or for the objects that are made of them."""


class Transfers:
    """
    Args:
        patience_seconds: for how long the store may be away.
    """

    def __init__(
        self, objects: ObjectStore, threads: Threads, clock: Clock, patience_seconds: float
    ) -> None:
        self.objects = objects
        self._threads = threads
        self._clock = clock
        self._patience = Patience(clock, patience_seconds, "Training jobs")
        self.room = RoomWait(clock)
        self._under_way: set[asyncio.Future[Any]] = set()
        self._halted = False
        self._hurried = False

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns, from a thread. It goes on where its caller is cancelled."""
        task = asyncio.ensure_future(self._threads.run(partial(self._begin, work)))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def insist(self, work: Callable[[], T]) -> T:
        """The same, again and again while the store is away.

        Raises:
            JobLost: it has been for too long.
            DiskFull: it, or this machine, has no room, and is not waited for any more.
        """
        while True:
            try:
                return await self._patience(lambda: self.run(work))
            except DiskFull as error:
                if not await self.room.may_come(str(error)):
                    raise
            except away_errors() as error:
                told = " The job was told to end, and waited no longer." if self._hurried else ""
                raise JobLost(f"The object store cannot be had: {error}{told}") from error

    async def each(self, work: Callable[[Item], object], items: Iterable[Item]) -> None:
        """Insist on `work` for each of `items`, some at once."""
        left = iter(items)

        async def take() -> None:
            for item in left:
                await self.insist(partial(work, item))

        takers = [asyncio.create_task(take()) for _ in range(AT_ONCE)]
        try:
            await asyncio.gather(*takers)
        finally:
            for taker in takers:
                taker.cancel()
            await asyncio.gather(*takers, return_exceptions=True)

    def check(self) -> None:
        """Called by threads, now and then. Raises Halted."""
        if self._halted:
            raise Halted("The job is over.")

    def hurry(self, seconds: float) -> None:
        """Wait no longer than so long from now for a store that is away."""
        self._hurried = True
        self._patience.limit(seconds)

    async def halt(self) -> None:
        """Have everything end that is under way, and wait until it has, or hangs in the store."""
        self._halted = True
        if self._under_way:
            ends = asyncio.ensure_future(self._ends())
            enough = asyncio.create_task(self._clock.sleep(HANGS_SECONDS))
            enough.add_done_callback(lambda _: ends.cancel())
            await asyncio.wait({ends})
            enough.cancel()

    async def close(self) -> None:
        """Halt, and wait until nothing is under way any more."""
        self._halted = True
        await self._ends()

    async def _ends(self) -> None:
        if self._under_way:
            await asyncio.wait(self._under_way)

    def _begin(self, work: Callable[[], T]) -> T:
        self.check()
        try:
            return work()
        except (StorageFull, StateFull) as error:
            raise DiskFull(str(error)) from error
        except OSError as error:
            if is_disk_full(error):
                raise DiskFull(f"The disk that holds training jobs is full: {error}.") from error
            raise
