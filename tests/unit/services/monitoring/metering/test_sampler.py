"""A turn of the sampling loop: what gateways count becomes samples."""

import asyncio

import pytest

from sagehen.base.errors import Unavailable
from sagehen.frame.statistics import Series, as_dimensions
from sagehen.services.monitoring.cloudwatch.sample_reads import Window, find, read
from sagehen.services.monitoring.cloudwatch.sample_store import count_samples
from sagehen.services.monitoring.metering import recorder
from support.clock import HandClock
from support.sampling_world import START, VARIANT, latencies


def test_what_gateways_count_becomes_differences(world):
    first = {"Invocations": 10, "Invocation4XXErrors": 2, "InvocationsPerInstance": 5.0}
    world.report(**first, ModelLatency=latencies((1000, 10)))
    world.turn()
    later = {"Invocations": 14, "Invocation4XXErrors": 2, "InvocationsPerInstance": 7.0}
    world.report(**later, ModelLatency=latencies((1000, 10), (9000, 4)))
    world.turn()
    assert world.numbers("Invocations") == (14, 14, 1, 1)
    assert world.numbers("Invocation4XXErrors") == (14, 2, 0, 1)
    assert world.numbers("Invocation5XXErrors") == (14, 0, 0, 0)
    assert world.numbers("InvocationsPerInstance") == (14, 7, 0.5, 0.5)
    seen = world.seen("ModelLatency", "Microseconds")
    assert (seen.count, seen.sum) == (14, 46_000)
    assert seen.percentile(50) == pytest.approx(1000, rel=0.0101)
    assert seen.percentile(99) == pytest.approx(9000, rel=0.0101)
    assert "ModelCacheHit" not in world.names()


def test_gateways_add_up_through_restarts(world):
    world.report("1", Invocations=5)
    world.report("2", Invocations=7)
    world.turn()
    world.report("1", Invocations=6)
    world.report("3", Invocations=1)  # The second died.
    world.turn()
    assert world.numbers("Invocations")[0] == 14


def test_what_was_counted_before_our_time_is_not_counted_twice(world):
    world.report("1", was_reported=True, Invocations=1000)
    world.turn()
    assert world.numbers("Invocations") is None
    world.report("1", was_reported=True, Invocations=1001)
    world.turn()
    assert world.numbers("Invocations")[0] == 1


def test_an_endpoint_made_anew_begins_from_nothing(world):
    world.report("1", Invocations=5)
    world.report("1", Invocations=2)
    world.turn()
    assert world.numbers("Invocations")[0] == 7


def test_containers_and_many_models(world):
    world.report(container="c", Invocations=3, ModelLatency=latencies((1000, 3)))
    world.turn()
    container = {**VARIANT, "ContainerName": "c"}
    assert world.numbers("Invocations", dimensions=container)[0] == 3
    assert world.numbers("ContainerLatency", "Microseconds", dimensions=container)[0] == 3
    many = {"ModelCacheHit": 2, "ModelCacheHitSamples": 5}
    world.report("9", **many, ModelLoadingWaitTimeSum=900, ModelLoadingWaitTimeCount=3)
    world.turn()
    assert world.numbers("ModelCacheHit") == (5, 2, 0, 1)
    assert world.numbers("ModelLoadingWaitTime", "Microseconds") == (3, 900, 300, 300)


def test_how_many_were_worked_on_at_once(world):
    world.report(ConcurrentRequestsPerModel={"now": 2, "lowest": 1, "highest": 9})
    world.turn()
    assert world.numbers("ConcurrentRequestsPerModel") == (1, 2, 1, 9)


def test_how_many_each_of_several_instances_worked_on(world):
    """So target tracking by this metric has an end: it falls when instances are added."""
    counts = {"Invocations": 10, "InvocationsPerInstance": 2.5}
    world.report(ConcurrentRequestsPerModel={"now": 2, "lowest": 0, "highest": 8}, **counts)
    world.turn()
    assert world.numbers("ConcurrentRequestsPerModel") == (1, 0.5, 0, 2)


def test_the_same_by_ten_seconds(world):
    for highest in (9, 5, 7):
        world.report(ConcurrentRequestsPerModel={"now": 2, "lowest": 1, "highest": highest})
        world.turn()
        world.clock.seconds += 5
    world.turn()
    series = Series("AWS/SageMaker", "ConcurrentRequestsPerModel", as_dimensions(VARIANT), "None")
    with world.database.read() as connection:
        ids = list(find(connection, series).values())
        found = read(connection, ids, Window(START * 60, START * 60 + 60, 10))
    # The slot that is not over is not written.
    assert {second - START * 60: (one.count, one.maximum) for second, one in found.items()} == {
        0: (2, 9),
    }


def test_fine_samples_outlive_a_store_that_is_away(world, monkeypatch):
    monkeypatch.setattr(recorder, "MAX_FINE_SLOTS", 2)
    write = world.recorder._write
    monkeypatch.setattr(
        world.recorder, "_write", lambda *_: (_ for _ in ()).throw(Unavailable("away"))
    )
    for _ in range(8):
        world.report(ConcurrentRequestsPerModel={"now": 1, "lowest": 1, "highest": 1})
        world.turn()
        world.clock.seconds += 5
    monkeypatch.setattr(world.recorder, "_write", write)
    world.turn()
    series = Series("AWS/SageMaker", "ConcurrentRequestsPerModel", as_dimensions(VARIANT), "None")
    with world.database.read() as connection:
        ids = list(find(connection, series).values())
        found = read(connection, ids, Window(START * 60, START * 60 + 60, 10))
    assert [second - START * 60 for second in found] == [20, 30]
    assert world.recorder.dropped > 0


def test_minutes_without_requests_have_zeros(world):
    world.report()
    world.turn()
    for minute in range(4):
        world.clock.seconds = (START + minute) * 60 + 30
        world.report(Invocations=min(minute, 2), InvocationsPerInstance=min(minute, 2))
        world.turn()
        world.clock.seconds += 29
        world.report(Invocations=min(minute, 2), InvocationsPerInstance=min(minute, 2))
        world.turn()
    world.clock.seconds = (START + 4) * 60 + 1
    world.turn()
    for name in ("Invocations", "InvocationsPerInstance"):
        series = Series("AWS/SageMaker", name, as_dimensions(VARIANT), "None")
        with world.database.read() as connection:
            ids = list(find(connection, series).values())
            found = read(connection, ids, Window(START * 60, (START + 10) * 60, 60))
        sums = {second // 60 - START: (one.count, one.sum) for second, one in found.items()}
        assert sums == {0: (1, 0), 1: (1, 1), 2: (1, 1), 3: (1, 0)}


def test_what_is_old_is_pruned(world):
    for _ in range(130):
        world.recorder.record("ExpiredRequests", VARIANT, 1)
        world.clock.seconds += 60
        if world.clock.seconds % 3600 == 0:
            world.turn()
    world.turn()
    world.clock.seconds = (START + 180) * 60
    world.turn()
    with world.database.read() as connection:
        assert count_samples(connection) == 10


def test_too_many_samples_are_kept_for_a_shorter_time(world, caplog):
    world.settings = world.settings.model_copy(update={"max_metric_samples": 20})
    world.sampler = world.another("me")
    for _ in range(40):
        world.recorder.record("ExpiredRequests", VARIANT, 1)
        world.clock.seconds += 60
    world.turn()
    with world.database.read() as connection:
        assert count_samples(connection) == 30
    assert "more samples" in caplog.text


def test_a_turn_that_fails_is_not_the_last(world, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(world.sampler, "_backlogs", fail)
        world.turn()
    assert "failed" in caplog.text
    world.report(Invocations=1)
    world.turn()
    assert world.numbers("Invocations")[0] == 1


async def _cancelled(world):
    world.report(Invocations=4)
    running = asyncio.create_task(world.sampler.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_the_last_values_are_written_at_the_end(world):
    class Still(HandClock):
        async def sleep(self, seconds):
            await asyncio.Event().wait()

    world.clock = Still(world.clock.seconds)
    world.sampler = world.another("me")
    asyncio.run(_cancelled(world))
    assert world.numbers("Invocations")[0] == 4
