"""The window of batches."""

import asyncio

import pytest

from sagehen.services.sagemaker.transform.runner.window import Window, window_bytes

MIB = 2**20


async def test_who_waits_goes_in_turn() -> None:
    window = Window()
    window.limit = 10
    await window.take(8)
    order: list[str] = []

    async def take(name: str, size: int) -> None:
        await window.take(size)
        order.append(name)

    tasks = [asyncio.create_task(take("large", 9)), asyncio.create_task(take("small", 1))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == []  # the small one fits, but does not overtake
    window.give(8)
    await asyncio.gather(*tasks)
    assert order == ["large", "small"]
    assert window.used == 10


async def test_a_batch_that_is_too_large_goes_alone() -> None:
    window = Window()
    window.limit = 10
    await asyncio.wait_for(window.take(50), 120)
    waiting = asyncio.create_task(window.take(1))
    await asyncio.sleep(0)
    assert not waiting.done()
    window.give(50)
    await asyncio.wait_for(waiting, 120)


async def test_a_cancelled_waiter_takes_nothing() -> None:
    window = Window()
    window.limit = 10
    await window.take(10)
    waiting = asyncio.create_task(window.take(5))
    await asyncio.sleep(0)
    window.give(10)  # hands over
    waiting.cancel()  # before it runs
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert window.used == 0


@pytest.mark.parametrize(
    ("slots", "payload", "expected"),
    [(1, 6 * MIB, 64 * MIB), (8, 6 * MIB, 96 * MIB), (100, 6 * MIB, 512 * MIB)],
)
def test_two_batches_for_each_slot(slots: int, payload: int, expected: int) -> None:
    assert window_bytes(slots, payload) == expected
