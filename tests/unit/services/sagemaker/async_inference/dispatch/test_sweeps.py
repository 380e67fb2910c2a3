"""What is long over is forgotten."""

from sagehen.services.sagemaker.async_inference import request_store as async_requests
from sagehen.services.sagemaker.async_inference.dispatch.sweeps import Sweeps
from sagehen.services.sagemaker.async_inference.records import AsyncState, QueueMode


async def test_history_and_queues_of_what_is_gone(bench) -> None:
    await bench.container()
    bench.serve()
    old = bench.enqueue(b"1")
    await bench.work()
    bench.clock.seconds += 100
    new, waiting = bench.enqueue(b"1"), None
    await bench.work()
    bench.serve("Empty", v=[])
    waiting = bench.enqueue(b"1", endpoint_name="Empty")
    with bench.database.write() as connection:
        async_requests.set_mode(connection, "Gone", QueueMode.PAUSED)
    sweeps = Sweeps(bench.writes, bench.clock, 60)
    assert await sweeps.sweep() == 1
    with bench.database.read() as connection:
        assert async_requests.get(connection, old) is None
        names = [one.endpoint_name for one in async_requests.endpoint_queues(connection)]
    assert bench.get(new).state is AsyncState.SUCCEEDED
    assert bench.get(waiting).state is AsyncState.QUEUED
    assert names == ["Empty", "End"]
