"""Transfers in threads, tried again while the store is away or the disk is full."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from sagehen.agent.jobs.data.transfers import (
    DISK_FULL_PAUSE_SECONDS,
    DISK_FULL_RETRY_SECONDS,
    HALT_SECONDS,
    DiskFull,
    DiskFullRetry,
    Halted,
    Transfers,
)
from sagehen.agent.jobs.failures import JobLost
from sagehen.base.concurrency import Threads
from sagehen.base.errors import Unavailable
from sagehen.services.s3.storage import ObjectStore
from sagehen.services.s3.storage.errors import StorageFull
from support.clock import HandClock, SteppedClock


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads(4, "test")
    yield threads
    threads.close()


@pytest.fixture
def make(objects: ObjectStore, threads: Threads) -> Callable[..., Transfers]:
    def make(clock: HandClock | SteppedClock) -> Transfers:
        return Transfers(objects, threads, clock, 100)

    return make


def failing(*errors: Exception) -> Callable[[], str]:
    left = iter(errors)

    def work() -> str:
        if (error := next(left, None)) is not None:
            raise error
        return "done"

    return work


class TestDiskFullRetry:
    async def test_it_waits_only_once_allowed_and_until_given_up(self) -> None:
        retry = DiskFullRetry(HandClock())
        assert not await retry.wait("full")
        retry.allow()
        assert await retry.wait("full")
        retry.give_up()
        assert not await retry.wait("full")

    async def test_all_its_waits_together_have_a_bound(self) -> None:
        clock = HandClock()
        retry = DiskFullRetry(clock)
        retry.allow()
        waits = 0
        while await retry.wait("full"):
            waits += 1
        assert waits == DISK_FULL_RETRY_SECONDS / DISK_FULL_PAUSE_SECONDS
        assert clock.seconds == DISK_FULL_RETRY_SECONDS

    async def test_giving_up_wakes_who_waits(self) -> None:
        clock = SteppedClock()
        retry = DiskFullRetry(clock)
        retry.allow()
        waiting = asyncio.create_task(retry.wait("full"))
        await clock.sleeper(DISK_FULL_PAUSE_SECONDS)
        retry.give_up()
        assert not await waiting


async def test_a_store_that_comes_back_is_used(make) -> None:
    away = [Unavailable("away"), Unavailable("away")]
    assert await make(HandClock()).run_with_retries(failing(*away)) == "done"


async def test_a_store_that_stays_away_loses_the_job(make) -> None:
    clock = HandClock()
    transfers = make(clock)
    with pytest.raises(JobLost, match="The object store is unavailable: away"):
        await transfers.run_with_retries(failing(*[Unavailable("away")] * 1000))
    assert 50 < clock.seconds <= 100


async def test_a_job_that_was_stopped_waits_less(make) -> None:
    clock = HandClock()
    transfers = make(clock)
    transfers.limit_retries(5)
    with pytest.raises(JobLost, match="The job was stopped and waited no longer"):
        await transfers.run_with_retries(failing(*[Unavailable("away")] * 1000))
    assert clock.seconds <= 5


async def test_a_full_disk_is_waited_for_once_allowed(make) -> None:
    transfers = make(HandClock())
    with pytest.raises(DiskFull, match="full"):
        await transfers.run_with_retries(failing(StorageFull("full")))
    transfers.disk_full_retry.allow()
    assert await transfers.run_with_retries(failing(StorageFull("full"))) == "done"


async def test_all_items_are_worked_on_and_an_error_ends_it(make) -> None:
    transfers = make(HandClock())
    seen: set[int] = set()
    await transfers.for_each(seen.add, range(20))
    assert seen == set(range(20))
    with pytest.raises(ValueError, match="bad"):
        await transfers.for_each(lambda _: failing(ValueError("bad"))(), range(20))


async def test_a_job_that_is_over_begins_nothing(make) -> None:
    transfers = make(HandClock())
    await transfers.halt()
    with pytest.raises(Halted):
        await transfers.run(failing())
    with pytest.raises(Halted):
        transfers.check()


async def test_a_hanging_store_delays_the_end_for_a_moment_only(make) -> None:
    clock, begun, release = SteppedClock(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hang() -> bool:
        loop.call_soon_threadsafe(begun.set)
        return release.wait(120)

    transfers = make(clock)
    hanging = asyncio.create_task(transfers.run(hang))
    await begun.wait()
    halting = asyncio.create_task(transfers.halt())
    await clock.sleeper(HALT_SECONDS)
    assert not halting.done()
    clock.advance(HALT_SECONDS)
    await halting
    release.set()
    assert await hanging
    await transfers.close()
