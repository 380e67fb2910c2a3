"""A job's transfers with the object store: threads, and retries while store or disk are
unavailable."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from sagehen.agent.artifacts.folders import is_disk_full
from sagehen.agent.jobs.failures import JobLost
from sagehen.base.clock import Clock
from sagehen.base.concurrency import Threads
from sagehen.base.errors import SagehenError, StateFull
from sagehen.base.retry import RetryPolicy, away_errors
from sagehen.services.s3.storage import ObjectStore
from sagehen.services.s3.storage.errors import StorageFull

__all__ = ["DiskFull", "Halted", "RoomWait", "Transfers"]

log = logging.getLogger(__name__)

ROOM_SECONDS = 60.0
"""in total: the job's files take space that others need"""
PAUSE_SECONDS = 5.0


class RoomWait:
    """Retries while the disk is full, for up to ROOM_SECONDS, once allowed and until given up."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: float | None = None
        self._allowed = False
        self._given_up = asyncio.Event()

    @property
    def is_given_up(self) -> bool:
        return self._given_up.is_set()

    def allow(self) -> None:
        self._allowed = True

    def give_up(self) -> None:
        """Wakes all waiters; later calls do not wait."""
        self._given_up.set()

    async def may_come(self, why: str) -> bool:
        """Waits a moment; returns whether to try again. `why` is for the log."""
        if not self._allowed or self.is_given_up:
            return False
        now = self._clock.monotonic()
        if self._until is None:
            self._until = now + ROOM_SECONDS
            log.warning("A training job waits: %s", why, extra={"action": "wait"})
        if now >= self._until:
            return False
        await self._pause()
        return not self.is_given_up

    async def _pause(self) -> None:
        sleeping = asyncio.create_task(self._clock.sleep(PAUSE_SECONDS))
        given_up = asyncio.create_task(self._given_up.wait())
        try:
            await asyncio.wait({sleeping, given_up}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            given_up.cancel()


AT_ONCE = 8
"""per job"""
HANGS_SECONDS = 5.0
"""the store's client retries for minutes; others must not wait"""

T = TypeVar("T")
Item = TypeVar("Item")


class Halted(SagehenError):
    """The job is over."""


class DiskFull(SagehenError):
    """There is no space for a job's files or objects."""


class Transfers:
    """One job's transfers.

    Args:
        patience_seconds: for an unavailable store.
    """

    def __init__(
        self, objects: ObjectStore, threads: Threads, clock: Clock, patience_seconds: float
    ) -> None:
        self.objects = objects
        self._threads = threads
        self._clock = clock
        self._patience = RetryPolicy(clock, patience_seconds, "Training jobs")
        self.room = RoomWait(clock)
        self._under_way: set[asyncio.Future[Any]] = set()
        self._halted = False
        self._hurried = False

    async def run(self, work: Callable[[], T]) -> T:
        """The thread goes on if the caller is cancelled."""
        task = asyncio.ensure_future(self._threads.run(partial(self._begin, work)))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def insist(self, work: Callable[[], T]) -> T:
        """Runs `work` in a thread, again while the store is unavailable.

        Raises:
            JobLost: the store was unavailable for too long.
            DiskFull: the wait for disk space is over.
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
        """Some items run concurrently."""
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
        """Is called by threads now and then; raises Halted."""
        if self._halted:
            raise Halted("The job is over.")

    def hurry(self, seconds: float) -> None:
        self._hurried = True
        self._patience.limit(seconds)

    async def halt(self) -> None:
        """Stops transfers; returns when all have ended or hang in the store."""
        self._halted = True
        if self._under_way:
            ends = asyncio.ensure_future(self._ends())
            enough = asyncio.create_task(self._clock.sleep(HANGS_SECONDS))
            enough.add_done_callback(lambda _: ends.cancel())
            await asyncio.wait({ends})
            enough.cancel()

    async def close(self) -> None:
        """Waits for all threads."""
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
