"""Leases are kept for as long as their requests are worked on."""

import asyncio

from sagehen.services.sagemaker.async_inference.records import AsyncState


async def test_leases_are_kept_while_it_is_worked_on(bench) -> None:
    container = await bench.container()
    bench.serve()
    gate = container.hold(b"done")
    sequence = bench.enqueue(b"1")
    await bench.begun(container)
    for _ in range(10):
        bench.clock.seconds += 20
        await bench.dispatcher.beat()
    assert bench.get(sequence).lease_until == bench.clock.now() + 30
    gate.set()
    await bench.work()
    assert bench.get(sequence).attempt == 1


async def test_a_slow_disk_does_not_make_a_running_request_lost(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    gate = container.hold(b"done")
    sequence = bench.enqueue(b"1")
    await bench.begun(container)
    join = bench.writes.join

    async def slow(work):
        bench.clock.seconds += 40
        done = await join(work)
        bench.clock.seconds += 40
        return done

    monkeypatch.setattr(bench.writes, "join", slow)
    await bench.dispatcher.beat()
    assert bench.get(sequence).state is AsyncState.LEASED
    monkeypatch.undo()
    gate.set()
    await bench.work()
    assert (bench.get(sequence).attempt, len(container.got)) == (1, 1)


async def test_what_was_leased_a_moment_ago_is_not_lost(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"1")
    join = bench.writes.join
    committed = asyncio.Event()

    async def slow(work):
        done = await join(work)
        if not committed.is_set():
            committed.set()
            bench.clock.seconds += 40
            # The other writers' turn, before who leased hears of it.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return done

    monkeypatch.setattr(bench.writes, "join", slow)
    turning = asyncio.create_task(bench.dispatcher.turn())
    await committed.wait()
    await bench.dispatcher.beat()
    await turning
    await bench.work()
    assert (bench.get(sequence).attempt, len(container.got)) == (1, 1)


async def test_a_beat_that_fails_is_not_the_last(bench, monkeypatch) -> None:
    beats: list[int] = []
    enough = asyncio.Event()

    async def beat() -> None:
        beats.append(1)
        if len(beats) > 2:
            enough.set()
            await asyncio.Event().wait()
        raise RuntimeError("broken")

    monkeypatch.setattr(bench.dispatcher, "beat", beat)
    beating = asyncio.create_task(bench.dispatcher._beat())
    async with asyncio.timeout(120):
        await enough.wait()
    assert (len(beats), beating.done()) == (3, False)
    beating.cancel()
