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
from sagehen.base.concurrency import Threads, first_of
from sagehen.base.errors import SagehenError, StateFull
from sagehen.base.retry import RetryPolicy, away_errors
from sagehen.services.s3.storage import ObjectStore
from sagehen.services.s3.storage.errors import StorageFull

__all__ = ["DiskFull", "DiskFullRetry", "Halted", "Transfers"]

log = logging.getLogger(__name__)

DISK_FULL_RETRY_SECONDS = 60.0
"""in total: the job's files take space that others need"""
DISK_FULL_PAUSE_SECONDS = 5.0


class DiskFullRetry:
    """Retries while the disk is full, for up to DISK_FULL_RETRY_SECONDS.

    It waits only once allowed, and until given up.
    """

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

    async def wait(self, reason: str) -> bool:
        """Waits a moment; returns whether to try again. `reason` is for the log."""
        if not self._allowed or self.is_given_up:
            return False
        now = self._clock.monotonic()
        if self._until is None:
            self._until = now + DISK_FULL_RETRY_SECONDS
            log.warning("A training job waits: %s", reason, extra={"action": "wait"})
        if now >= self._until:
            return False
        await first_of(self._clock.sleep(DISK_FULL_PAUSE_SECONDS), self._given_up.wait())
        return not self.is_given_up


CONCURRENT_TRANSFERS = 8
"""per job"""
HALT_SECONDS = 5.0
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
        retry_seconds: for an unavailable store.
        check_lease: that of JobContext.
    """

    def __init__(
        self,
        objects: ObjectStore,
        threads: Threads,
        clock: Clock,
        retry_seconds: float,
        check_lease: Callable[[], None] = lambda: None,
    ) -> None:
        self._check_lease = check_lease
        self.objects = objects
        self._threads = threads
        self._clock = clock
        self._retry_policy = RetryPolicy(clock, retry_seconds, "Training jobs")
        self.disk_full_retry = DiskFullRetry(clock)
        self._running: set[asyncio.Future[Any]] = set()
        self._halted = False
        self._retries_limited = False

    async def run(self, work: Callable[[], T]) -> T:
        """The thread goes on if the caller is cancelled."""
        task = asyncio.ensure_future(self._threads.run(partial(self._call, work)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def run_with_retries(self, work: Callable[[], T]) -> T:
        """Runs `work` in a thread, again while the store is unavailable.

        Raises:
            JobLost: the store was unavailable for too long.
            DiskFull: the wait for disk space is over.
        """
        while True:
            try:
                return await self._retry_policy(lambda: self.run(work))
            except DiskFull as error:
                if not await self.disk_full_retry.wait(str(error)):
                    raise
            except away_errors() as error:
                stopped = (
                    " The job was stopped and waited no longer." if self._retries_limited else ""
                )
                raise JobLost(f"The object store is unavailable: {error}{stopped}") from error

    async def for_each(self, work: Callable[[Item], object], items: Iterable[Item]) -> None:
        """Some items run concurrently."""
        remaining = iter(items)

        async def process() -> None:
            for item in remaining:
                await self.run_with_retries(partial(work, item))

        workers = [asyncio.create_task(process()) for _ in range(CONCURRENT_TRANSFERS)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    def check(self) -> None:
        """Is called by threads now and then. Raises Halted, or Unavailable without a lease."""
        if self._halted:
            raise Halted("The job is over.")
        self._check_lease()

    def limit_retries(self, seconds: float) -> None:
        self._retries_limited = True
        self._retry_policy.limit(seconds)

    async def halt(self) -> None:
        """Stops transfers; returns when all have ended or hang in the store."""
        self._halted = True
        if self._running:
            await first_of(self._wait_for_running(), self._clock.sleep(HALT_SECONDS))

    async def close(self) -> None:
        """Waits for all threads."""
        self._halted = True
        await self._wait_for_running()

    async def _wait_for_running(self) -> None:
        if self._running:
            await asyncio.wait(self._running)

    def _call(self, work: Callable[[], T]) -> T:
        self.check()
        try:
            return work()
        except (StorageFull, StateFull) as error:
            raise DiskFull(str(error)) from error
        except OSError as error:
            if is_disk_full(error):
                raise DiskFull(f"The disk that holds training jobs is full: {error}.") from error
            raise
