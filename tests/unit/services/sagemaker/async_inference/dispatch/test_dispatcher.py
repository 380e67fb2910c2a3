"""Whose turn it is: slots, endpoints that come, pause and go, and cancelled requests."""

import asyncio
import json

from aiohttp import web

from sagehen.services.sagemaker.async_inference import request_store as async_requests
from sagehen.services.sagemaker.async_inference.records import AsyncState, QueueMode


async def test_no_more_at_once_than_there_are_slots(bench) -> None:
    first, second = await bench.container("i-1"), await bench.container("i-2")
    bench.serve(slots=2)
    gate = asyncio.Event()
    inside: list[int] = [0]

    async def wait(_: web.Request) -> web.Response:
        inside.append(inside[-1] + 1)
        await gate.wait()
        inside.append(inside[-1] - 1)
        return web.Response()

    first.answer = second.answer = wait
    sequences = [bench.enqueue(b"1") for _ in range(7)]
    await bench.begun(first, 2)
    await bench.begun(second, 2)
    assert [bench.get(one).state for one in sequences] == ["LEASED"] * 4 + ["QUEUED"] * 3
    assert bench.dispatcher.busy == {"i-1", "i-2"}
    gate.set()
    await bench.work()
    assert max(inside) == 4
    assert bench.outputs() == [f"{number:04}.out" for number in range(7)]


async def test_endpoints_take_turns(bench) -> None:
    bench.dispatcher._max_in_flight = 4
    container = await bench.container()
    for name in ("A", "B"):
        bench.serve(name, slots=9, v=["i-1"])
    many = [bench.enqueue(b"1", endpoint_name="A") for _ in range(9)]
    few = [bench.enqueue(b"1", endpoint_name="B") for _ in range(2)]
    gate = container.hold()
    await bench.begun(container, 4)
    assert [bench.get(one).state for one in few] == ["LEASED"] * 2
    assert [bench.get(one).state for one in many] == ["LEASED"] * 2 + ["QUEUED"] * 7
    gate.set()


async def test_without_instances_requests_wait_until_they_are_too_old(bench) -> None:
    bench.serve(v=[])
    sequence = bench.enqueue(b"1")
    await bench.work()
    assert bench.get(sequence).state is AsyncState.QUEUED
    bench.clock.seconds += 599.9
    await bench.work()
    assert bench.get(sequence).state is AsyncState.QUEUED
    bench.clock.seconds += 0.1
    await bench.work()
    assert bench.get(sequence).state is AsyncState.EXPIRED
    assert bench.outputs() == ["0000-error.out"]
    assert bench.counted("ExpiredRequests") == [1]
    assert bench.counted("InvocationFailures") == []
    assert "RequestTTLSeconds" in json.loads(bench.notices[0].message)["failureReason"]


async def test_a_paused_endpoint_gets_nothing(bench) -> None:
    await bench.container()
    bench.serve()
    with bench.database.write() as connection:
        async_requests.set_mode(connection, "End", QueueMode.PAUSED)
    sequence = bench.enqueue(b"1")
    await bench.work()
    assert bench.get(sequence).state is AsyncState.QUEUED
    with bench.database.write() as connection:
        async_requests.set_mode(connection, "End", QueueMode.DRAINING)
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED


async def test_what_waits_for_a_deleted_endpoint_fails(bench) -> None:
    container = await bench.container()
    bench.serve(v=[])
    old = [bench.enqueue(b"old") for _ in range(3)]
    bench.delete()
    await bench.dispatcher.turn()
    # One of the same name comes at once; it has nothing to do with the old one's requests.
    bench.serve()
    new = bench.enqueue(b"new")
    await bench.work()
    assert [bench.get(one).state for one in old] == ["FAILED"] * 3
    assert "was deleted" in bench.get(old[0]).outcome.failure_reason
    assert bench.get(new).state is AsyncState.SUCCEEDED
    assert [body for _, body in container.got] == [b"new"]
    assert len(bench.notices) == 4


async def test_what_a_deleted_endpoint_left_is_redriven_to_a_new_one(bench) -> None:
    await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"1")
    bench.delete()
    await bench.work()
    assert bench.get(sequence).state is AsyncState.FAILED
    bench.serve()
    await bench.work()
    with bench.database.write() as connection:
        async_requests.redrive(connection, [sequence], bench.clock.now())
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED


async def test_what_a_deleted_endpoint_works_on_is_broken_off(bench) -> None:
    container = await bench.container()
    bench.serve()

    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    container.answer = hang
    sequence = bench.enqueue(b"1")
    await bench.begun(container)
    bench.delete()
    await bench.work()
    assert bench.get(sequence).state is AsyncState.FAILED
    assert bench.object("0000-error.out")[0].startswith(b"The endpoint End was deleted")


async def test_cancelled_while_it_waits(bench) -> None:
    container = await bench.container()
    bench.serve(v=[])
    sequence = bench.enqueue(b"1")
    with bench.database.write() as connection:
        async_requests.cancel(connection, sequence, 1000)
    bench.serve()
    await bench.work()
    assert bench.get(sequence).state is AsyncState.CANCELLED
    assert container.got == []
    assert bench.outputs() == ["0000-error.out"]
    assert [notice.topic_arn for notice in bench.notices] == ["arn:bad"]


async def test_cancelled_while_it_runs(bench) -> None:
    container = await bench.container()
    bench.serve()
    broken_off = asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        broken_off.set()
        return web.Response()

    container.answer = hang
    sequence = bench.enqueue(b"1")
    await bench.begun(container)
    with bench.database.write() as connection:
        async_requests.cancel(connection, sequence, 1000)
    await bench.work()
    async with asyncio.timeout(120):
        await broken_off.wait()
    assert bench.get(sequence).state is AsyncState.CANCELLED
    assert bench.dispatcher.busy == frozenset()
    assert bench.outputs() == ["0000-error.out"]


async def test_only_one_dispatches(bench) -> None:
    await bench.container()
    bench.serve()
    await bench.dispatcher.turn()
    other = bench.new_dispatcher("elsewhere")
    sequence = bench.enqueue(b"1")
    await other.turn()
    assert bench.get(sequence).state is AsyncState.QUEUED
    bench.clock.seconds += 5
    await other.turn()
    assert bench.get(sequence).state is AsyncState.LEASED
    await bench.dispatcher.turn()
    await asyncio.gather(*other._tasks.values())
    await other._stop()


async def test_time_alone_does_not_look_into_an_empty_queue(bench) -> None:
    bench.serve()
    dispatcher = bench.dispatcher
    await dispatcher.turn()  # It takes the lease, which is a commit.
    await dispatcher._turn_or_wait()
    turns = dispatcher._turns
    await dispatcher._turn_or_wait()
    assert dispatcher._turns == turns
    # Somebody else's request, of which nobody told.
    bench.enqueue(b"1")
    await dispatcher._turn_or_wait()
    assert dispatcher._turns == turns + 1


async def test_a_queue_that_something_waits_in_is_looked_into_each_time(bench) -> None:
    bench.enqueue(b"1")  # Nothing serves it, and it may grow too old any time.
    dispatcher = bench.dispatcher
    for turn in range(1, 4):
        await dispatcher._turn_or_wait()
        assert dispatcher._turns == turn
