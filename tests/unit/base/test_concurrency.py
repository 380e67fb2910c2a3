"""The first of several awaitables, threads, and wakes from other threads."""

import asyncio
import threading

import pytest

from sagehen.base.concurrency import Threads, Wake, first_of, in_thread


async def returns(value: str) -> str:
    return value


async def fails() -> None:
    raise KeyError("told")


class Endless:
    """Runs until it is cancelled."""

    def __init__(self) -> None:
        self.was_cancelled = False

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.was_cancelled = True
            raise


async def test_the_first_is_returned_and_the_other_has_ended() -> None:
    endless = Endless()

    first, other = await first_of(returns("a"), endless.run())

    assert first is not None
    assert first.result() == "a"
    assert other is None
    assert endless.was_cancelled


async def test_several_may_be_done() -> None:
    first, second, third = await first_of(returns("a"), returns("b"), Endless().run())

    assert [future and future.result() for future in (first, second, third)] == ["a", "b", None]


async def test_the_error_of_the_first_is_left_to_the_caller() -> None:
    failed, _ = await first_of(fails(), Endless().run())

    assert failed is not None
    with pytest.raises(KeyError):
        failed.result()


async def test_a_task_of_the_caller_runs_on() -> None:
    endless = Endless()
    task = asyncio.create_task(endless.run())

    own, _ = await first_of(task, returns("a"))

    assert own is None
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


async def test_who_is_cancelled_cancels_all() -> None:
    both = Endless(), Endless()
    waiting = asyncio.create_task(first_of(*(one.run() for one in both)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert [one.was_cancelled for one in both] == [True, True]


async def test_work_in_a_thread_ends_before_its_cancelled_caller() -> None:
    begun, go_on = threading.Event(), threading.Event()
    ended: list[bool] = []

    def work() -> None:
        begun.set()
        ended.append(go_on.wait(120))

    caller = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(begun.wait, 120)
    caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == [True]


async def test_threads_are_named_and_return_what_the_work_does() -> None:
    threads = Threads(1, "pool")

    assert (await threads.run(lambda: threading.current_thread().name)).startswith("pool")
    threads.close()


async def test_another_thread_wakes_the_loop() -> None:
    wake = Wake()
    wake.hint()
    assert not wake.is_set, "nobody waits yet"
    wake.begin()
    await asyncio.to_thread(wake.hint)
    async with asyncio.timeout(120):
        await wake.wait()
    wake.clear()
    assert not wake.is_set


async def test_a_rest_ends_with_the_wake() -> None:
    wake = Wake()
    wake.begin()
    wake.set()
    async with asyncio.timeout(120):
        await wake.rest(3600)
        await wake.rest(0)


async def test_a_rest_ends_by_itself() -> None:
    wake = Wake()
    await wake.rest(0.001)
    assert not wake.is_set


async def test_results_and_errors_come_back_from_threads() -> None:
    threads = Threads(1, "test")
    try:
        assert await threads.run(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 / 0)
    finally:
        threads.close()
