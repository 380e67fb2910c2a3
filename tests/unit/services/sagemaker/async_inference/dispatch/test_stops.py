"""What control was doing when it is told to end."""

import asyncio
import threading

from aiohttp import web

from sagehen.services.sagemaker.async_inference.dispatch import dispatcher
from sagehen.services.sagemaker.async_inference.records import AsyncState


async def test_what_is_stopped_is_given_back(bench) -> None:
    container = await bench.container()
    bench.serve()

    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    container.answer = hang
    sequence = bench.enqueue(b"1")
    await bench.begun(container)
    await bench.dispatcher._stop()
    given = bench.get(sequence)
    assert (given.state, given.lost, given.reclaimed) == ("QUEUED", 0, 0)


async def test_an_answer_is_written_down_before_control_ends(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"1")
    writing, go_on = slow_puts(bench, monkeypatch)
    await bench.dispatcher.turn()
    await asyncio.to_thread(writing.wait, 10)
    stopping = asyncio.create_task(bench.dispatcher._stop())
    await asyncio.sleep(0)
    go_on.set()
    await stopping
    assert bench.get(sequence).state is AsyncState.SUCCEEDED
    assert len(container.got) == 1


async def test_what_is_still_written_when_control_ends_is_not_given_back(
    bench, monkeypatch
) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"1")
    writing, go_on = slow_puts(bench, monkeypatch)
    monkeypatch.setattr(dispatcher, "STOP_SECONDS", 0.01)
    await bench.dispatcher.turn()
    await asyncio.to_thread(writing.wait, 10)
    threads = bench.dispatcher._work.threads
    await bench.dispatcher._stop()
    assert bench.get(sequence).state is AsyncState.LEASED
    go_on.set()
    await asyncio.to_thread(threads._pool.shutdown)
    await bench.restart()
    await bench.work()
    ended = bench.get(sequence)
    assert (ended.state, ended.attempt) == ("SUCCEEDED", 2)
    assert len(container.got) == 1


def slow_puts(bench, monkeypatch) -> tuple[threading.Event, threading.Event]:
    """Set when an object is being written, and to be set for it to be.

    None is small enough to be written together with its request's end.
    """
    monkeypatch.setattr(bench.dispatcher._work.outputs, "small", lambda *_: None)
    writing, go_on = threading.Event(), threading.Event()
    put = bench.objects.put

    def slow(*given):
        writing.set()
        go_on.wait(120)
        return put(*given)

    monkeypatch.setattr(bench.objects, "put", slow)
    return writing, go_on
