"""What an instance had when it was lost, or did not begin, is asked again."""

import asyncio

import pytest
from aiohttp import web

from sagehen.services.sagemaker.async_inference.records import AsyncState


async def test_a_lost_instance_is_asked_again_so_often(bench) -> None:
    container = await bench.container()
    bench.serve()
    container.answer = container.hang_up
    sequence = bench.enqueue(b"1")
    for _ in range(5):
        await bench.work()
        bench.clock.seconds += 5
    ended = bench.get(sequence)
    assert (ended.state, ended.attempt, ended.lost) == ("FAILED", 3, 2)
    assert len(container.got) == 3
    body, _ = bench.object("0000-error.out")
    assert body == b"Connection reset by peer for the End endpoint. Please retry."


async def test_after_a_loss_it_is_answered_once(bench) -> None:
    container = await bench.container()
    bench.serve()
    container.answer = container.hang_up
    bench.enqueue(b"1")
    await bench.work()
    container.answer = container.double
    bench.clock.seconds += 5
    await bench.work()
    assert bench.outputs() == ["0000.out"]
    assert len(bench.notices) == 1


@pytest.mark.parametrize("how", ["away", "busy"])
async def test_what_did_not_begin_waits_and_is_not_counted(bench, how) -> None:
    container = await bench.container()
    bench.serve()

    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=503, headers={"x-sagehen-not-started": "1"})

    if how == "away":
        await container.stop()
    container.answer = refuse
    sequence = bench.enqueue(b"1")
    for _ in range(4):
        await bench.work()
        bench.clock.seconds += 5
    waiting = bench.get(sequence)
    assert (waiting.state, waiting.lost) == ("QUEUED", 0)
    assert waiting.attempt == 4, "not more often than the instance has rested"
    container.answer = container.double
    if how == "away":
        await container.start()
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED


async def test_a_retired_instance_is_busy_until_it_is_done(bench) -> None:
    old = await bench.container("i-1")
    bench.serve()
    gate = old.hold(b"old")
    bench.enqueue(b"1")
    await bench.begun(old)
    new = await bench.container("i-2")
    bench.serve(v=["i-2"])
    idle = asyncio.Event()
    bench.dispatcher.on_idle = idle.set
    bench.enqueue(b"2")
    await bench.begun(new)
    assert "i-1" in bench.dispatcher.busy
    gate.set()
    await bench.work()
    assert idle.is_set()
    assert bench.dispatcher.busy == frozenset()
    assert bench.object("0000.out")[0] == b"old"
