"""A turn of the sampling loop: what gateways, agents and queues tell becomes samples."""

import asyncio
from dataclasses import dataclass

import msgspec
import pytest

from sagehen.agent.messages import JobSample
from sagehen.base.errors import Unavailable
from sagehen.frame.container_specs import InstanceState
from sagehen.frame.routes import AsyncPlan
from sagehen.frame.statistics import Series, add_to_buckets, as_dimensions
from sagehen.services.monitoring.cloudwatch.sample_reads import (
    Window,
    find,
    metrics,
    read,
)
from sagehen.services.monitoring.cloudwatch.sample_store import count_samples, prune
from sagehen.services.monitoring.metering import recorder
from sagehen.services.monitoring.metering import sampler as module
from sagehen.services.monitoring.metering.recorder import Recorder
from sagehen.services.monitoring.metering.sampler import Sampler
from sagehen.services.monitoring.prometheus.gateway_totals import GatewayReport, Observations
from sagehen.services.sagemaker.async_inference import (
    lease_store as async_leases,
)
from sagehen.services.sagemaker.async_inference import (
    request_store as async_requests,
)
from sagehen.services.sagemaker.async_inference.metrics import backlogs
from sagehen.services.sagemaker.async_inference.records import AsyncRequest, OutputTarget
from sagehen.services.sagemaker.hosting import (
    endpoint_store as endpoints,
)
from sagehen.services.sagemaker.hosting import (
    instance_store as instances,
)
from sagehen.services.sagemaker.hosting.endpoint_store import first_variant
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from sagehen.state import leases
from sagehen.state.leadership import Leadership
from support.clock import HandClock
from support.fleet import deployment, endpoint, instance
from support.state import settings_of

START = 28_000_000
"""A minute."""
VARIANT = {"EndpointName": "e", "VariantName": "v"}


@dataclass
class Told:
    name: str
    value: float
    instance: str = "i-1"
    endpoint: str = "e"
    variant: str = "v"


class FakeAgent:
    def __init__(self):
        self.told = []
        self.jobs = []
        self.away = False

    async def metrics(self):
        if self.away:
            raise Unavailable("The agent is away.")
        return self.told

    async def job_samples(self):
        return self.jobs


class World:
    def __init__(self, database, home):
        self.clock = HandClock(START * 60.0)
        self.database = database
        self.agent = FakeAgent()
        self.settings = settings_of(home, metric_retention_seconds=3600)
        self.observations = Observations(self.clock)
        self.recorder = Recorder(self.clock, database, 100, first_variant)
        self.sampler = self.another("me")

    def another(self, holder):
        return Sampler(
            self.settings,
            self.database,
            self.recorder,
            self.observations,
            self.agent,
            self.clock,
            Leadership(self.database, self.clock, holder).lease(module.LEASE_NAME),
            backlogs,
        )

    def turn(self, sampler=None):
        asyncio.run((sampler or self.sampler).turn())

    def report(self, gateway="1", was_reported=False, **counts):
        """`was_reported`: to another control."""
        body = {
            "gateway": gateway,
            "was_reported": was_reported,
            "variants": [{"endpoint": "e", "variant": "v", **counts}],
        }
        told = msgspec.json.decode(msgspec.json.encode(body), type=GatewayReport)
        self.observations.record(told)

    def seen(self, name, unit="None", namespace="AWS/SageMaker", dimensions=VARIANT):
        """All values there are, in one."""
        series = Series(namespace, name, as_dimensions(dimensions), unit)
        with self.database.read() as connection:
            ids = list(find(connection, series).values())
            window = Window(START * 60, (START + 10_000) * 60, 600_000)
            found = read(connection, ids, window, True)
        return found[window.start] if found else None

    def numbers(self, *args, **more):
        seen = self.seen(*args, **more)
        return seen and (seen.count, seen.sum, seen.minimum, seen.maximum)

    def names(self):
        with self.database.read() as connection:
            return {one.name for one in metrics(connection, 0, None, None, 0)}


@pytest.fixture
def world(database, tmp_path):
    return World(database, tmp_path)


def latencies(*times):
    """(microseconds, count)."""
    buckets: dict[int, int] = {}
    add_to_buckets(buckets, times)
    return {
        "count": sum(count for _, count in times),
        "sum": sum(time * count for time, count in times),
        "buckets": {str(bucket): count for bucket, count in buckets.items()},
    }


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


def test_asynchronous_endpoints_have_no_zeros(world, monkeypatch):
    monkeypatch.setattr(
        world.sampler, "_backlogs", lambda *_: [("HasBacklogWithoutCapacity", "e", 0.0)]
    )
    for minute in range(3):
        world.clock.seconds = (START + minute) * 60 + 50
        world.report()
        world.turn()
    assert "Invocations" not in world.names()


def test_what_agents_tell_of_the_hosts_of_jobs(world):
    names = ("CPUUtilization", "MemoryUtilization", "DiskUtilization")
    world.agent.jobs = [
        JobSample(name=name, job="train", host=f"algo-{number}", value=10.0 * number)
        for name in (*names, "SomethingNewer")
        for number in (1, 2)
    ]
    world.turn()
    world.clock.seconds += module.HOST_SECONDS
    world.turn()
    for name in names:
        for number in (1, 2):
            seen = world.numbers(
                name,
                "Percent",
                "/aws/sagemaker/TrainingJobs",
                {"Host": f"train/algo-{number}"},
            )
            assert seen == (1, 10 * number, 10 * number, 10 * number), name
    assert world.names() == set(names)
    assert world.recorder.dropped == 0


def test_what_agents_tell_of_their_hosts(world):
    host = "/aws/sagemaker/Endpoints"
    loading = [Told("ModelLoadingTimeSum", 500), Told("ModelLoadingTimeCount", 5)]
    world.agent.told = [
        Told("CPUUtilization", 30.0),
        Told("CPUUtilization", 50.0, "i-2"),
        Told("InstanceMemoryBytes", 7e9),
        Told("InstanceLimitHits", 3),
        *loading,
    ]
    world.turn()
    assert world.numbers("CPUUtilization", "Percent", host) == (2, 80, 30, 50)
    assert world.numbers("ModelLoadingTime", "Microseconds") == (5, 500, 100, 100)
    assert not world.names() & {"InstanceMemoryBytes", "InstanceLimitHits"}
    world.turn()
    assert world.numbers("CPUUtilization", "Percent", host)[0] == 2, "asked again too soon"
    world.clock.seconds += module.HOST_SECONDS
    loading[0].value, loading[1].value = 1100, 7
    world.turn()
    assert world.numbers("ModelLoadingTime", "Microseconds") == (7, 1100, 100, 300)


def test_a_minute_has_one_sample_of_each_instance(world):
    """However often it is looked at: so the sum is that of all instances."""
    host = "/aws/sagemaker/Endpoints"
    models = [Told("LoadedModelCount", 0.0), Told("LoadedModelCount", 1.0, "i-2")]
    cpu = [Told("CPUUtilization", 20.0), Told("CPUUtilization", 60.0, "i-2")]
    world.agent.told = [*models, *cpu]
    for look in range(6):
        world.turn()
        world.clock.seconds += module.HOST_SECONDS
        models[0].value = 2.0
        cpu[0].value += 10.0
        assert world.numbers("LoadedModelCount", "None", host)[0] == 2, look
    # The models as they were last; of the processor the mean of 20, 30, … 70, and 60.
    assert world.numbers("LoadedModelCount", "None", host) == (2, 3, 0, 2)
    count, total, *bounds = world.numbers("CPUUtilization", "Percent", host)
    assert (count, total, bounds) == (2, pytest.approx(45 + 60), [20, 70])
    seen = world.seen("CPUUtilization", "Percent", host)
    assert seen.percentile(50) == pytest.approx(60, rel=0.0101), "over all looks"
    world.turn()
    assert world.numbers("LoadedModelCount", "None", host) == (4, 6, 0, 2), "the next minute"


def test_a_minute_has_one_sample_of_a_backlog(world):
    asynchronous(world, queued=3)
    for _ in range(11):
        world.turn()
        world.clock.seconds += module.TURN_SECONDS
    assert gauges(world)[0] == pytest.approx(3)
    told = world.numbers("ApproximateBacklogSize", "Count", dimensions={"EndpointName": "e"})
    assert told == (1, 3, 3, 3)


def test_a_look_that_there_was_no_room_for_leaves_no_empty_sample(world):
    host = "/aws/sagemaker/Endpoints"
    world.recorder = Recorder(world.clock, world.database, 1, first_variant)
    world.sampler = world.another("me")
    world.recorder.record("ExpiredRequests", VARIANT, 1)
    world.recorder.flush()
    world.agent.told = [Told("CPUUtilization", 20.0)]
    world.turn()
    assert world.recorder.dropped == 1
    with world.database.write() as connection:
        prune(connection, START + 1, 0, 0, 100)
    for count in (None, 1):
        world.clock.seconds += 30
        world.turn()
        seen = world.numbers("CPUUtilization", "Percent", host)
        assert (seen and seen[0]) == count


def test_the_agent_may_be_away(world):
    world.agent.away = True
    world.report(Invocations=1)
    world.turn()
    assert world.numbers("Invocations")[0] == 1


def asynchronous(world, instance_states=(), queued=0, leased=0):
    plan = AsyncPlan(output_path="s3://out/")
    made = msgspec.structs.replace(deployment("d"), asynchronous=plan)
    with world.database.write() as connection:
        record = endpoint(EndpointStatus.IN_SERVICE, name="e", current=made)
        endpoints.insert(connection, record)
        for number, state in enumerate(instance_states):
            one = instance(f"i-{number}", "d", state, endpoint_name="e")
            instances.insert(connection, one)
        requests = [
            AsyncRequest(
                request_id=f"r{number}",
                inference_id="i",
                endpoint_name="e",
                received_at=world.clock.now() - 100 + number,
                expires_at=world.clock.now() + 1000,
                timeout_seconds=9,
                output=OutputTarget(location="s3://out/1"),
            )
            for number in range(queued + leased)
        ]
        if requests:
            async_requests.enqueue(connection, [(one, None) for one in requests])
        async_leases.lease(connection, "e", leased, "w", 0.0, 1e12)


def gauges(world):
    def value(name, unit):
        return world.numbers(name, unit, dimensions={"EndpointName": "e"})[1]

    return (
        value("ApproximateBacklogSize", "Count"),
        value("ApproximateBacklogSizePerInstance", "Count"),
        value("ApproximateAgeOfOldestRequest", "Seconds"),
        value("HasBacklogWithoutCapacity", "Count"),
    )


SERVES, STARTS = InstanceState.IN_SERVICE, InstanceState.STARTING


@pytest.mark.parametrize(
    ("states", "queued", "leased", "told"),
    [
        ([], 0, 0, (0, 0, 0, 0)),
        ([], 3, 0, (3, 3, 100, 1)),
        ([STARTS], 3, 0, (3, 3, 100, 1)),
        ([SERVES, SERVES, STARTS], 4, 1, (5, 2.5, 100, 0)),
        ([], 0, 2, (2, 2, 100, 0)),
    ],
)
def test_backlogs(world, states, queued, leased, told):
    asynchronous(world, states, queued, leased)
    world.turn()
    assert gauges(world) == told
    shown = world.sampler.measured({"e"})
    assert shown["ApproximateBacklogSize"] == {("e",): told[0]}
    assert world.sampler.measured({"other"}) == {}


def test_of_several_controls_one_samples_backlogs(world):
    asynchronous(world, queued=3)
    world.turn()
    world.turn(world.another("other"))
    assert world.numbers("ApproximateBacklogSize", "Count", dimensions={"EndpointName": "e"}) == (
        1,
        3,
        3,
        3,
    )
    with world.database.write() as connection:
        leases.release(connection, module.LEASE_NAME, "me")
    world.clock.seconds += 60
    world.turn(world.another("other"))
    assert gauges(world)[0] == 6


def test_real_time_endpoints_have_no_backlog(world):
    with world.database.write() as connection:
        endpoints.insert(connection, endpoint(EndpointStatus.IN_SERVICE, current=deployment("d")))
    world.turn()
    assert world.names() == set()


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


# Several controls: a leader takes over


def test_what_another_leader_has_taken_is_not_counted_again(world):
    """This control has led before, and stood by since."""
    world.report("1", Invocations=5)
    world.turn()
    world.sampler.change_leader()
    # The other one has led, and was told of 90 more; so was it of all that "2" has counted.
    world.sampler.change_leader()
    world.report("1", was_reported=True, Invocations=95)
    world.report("2", was_reported=True, Invocations=40)
    world.report("3", Invocations=2)
    world.turn()
    assert world.numbers("Invocations")[0] == 5 + 2
    world.report("1", was_reported=True, Invocations=96)
    world.report("2", was_reported=True, Invocations=41)
    world.turn()
    assert world.numbers("Invocations")[0] == 5 + 2 + 2


def test_what_was_reported_before_the_change_is_written(world):
    world.report("1", Invocations=5)
    world.sampler.change_leader()
    world.turn()
    assert world.numbers("Invocations")[0] == 5


def test_a_minute_of_two_leaders_has_one_sample_of_a_gauge(world):
    host = "/aws/sagemaker/Endpoints"
    world.agent.told = [Told("CPUUtilization", 30.0)]
    world.turn()
    for _ in range(2):
        world.sampler.change_leader()
        world.clock.seconds += module.HOST_SECONDS
        world.turn()
    assert world.numbers("CPUUtilization", "Percent", host) == (1, 30, 30, 30)
    world.clock.seconds = (START + 1) * 60
    world.turn()
    assert world.numbers("CPUUtilization", "Percent", host) == (2, 60, 30, 30)


def test_a_new_leader_does_not_count_what_agents_have_counted_before(world):
    loading = [Told("ModelLoadingTimeSum", 500), Told("ModelLoadingTimeCount", 5)]
    world.agent.told = loading
    world.turn()
    world.sampler.change_leader()
    loading[0].value, loading[1].value = 900, 9
    world.clock.seconds += module.HOST_SECONDS
    world.turn()
    assert world.numbers("ModelLoadingTime", "Microseconds")[0] == 5
    loading[0].value, loading[1].value = 1100, 10
    world.clock.seconds += module.HOST_SECONDS
    world.turn()
    assert world.numbers("ModelLoadingTime", "Microseconds")[:2] == (6, 700)
    # A node that comes later counts from nothing.
    world.clock.seconds += module.NEW_LEADER_SECONDS
    world.agent.told = [
        *loading,
        Told("ModelLoadingTimeSum", 50, "i-2"),
        Told("ModelLoadingTimeCount", 1, "i-2"),
    ]
    world.turn()
    assert world.numbers("ModelLoadingTime", "Microseconds")[:2] == (7, 750)
