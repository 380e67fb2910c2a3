"""A turn of the sampling loop: what agents tell of instances and jobs becomes samples."""

import pytest

from sagehen.agent.messages import JobSample
from sagehen.services.monitoring.cloudwatch.sample_store import prune
from sagehen.services.monitoring.metering import sampler as module
from sagehen.services.monitoring.metering.recorder import Recorder
from sagehen.services.sagemaker.hosting.endpoint_store import first_variant
from support.sampling_world import START, VARIANT, AgentSample


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
    loading = [AgentSample("ModelLoadingTimeSum", 500), AgentSample("ModelLoadingTimeCount", 5)]
    world.agent.told = [
        AgentSample("CPUUtilization", 30.0),
        AgentSample("CPUUtilization", 50.0, "i-2"),
        AgentSample("InstanceMemoryBytes", 7e9),
        AgentSample("InstanceLimitHits", 3),
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
    models = [AgentSample("LoadedModelCount", 0.0), AgentSample("LoadedModelCount", 1.0, "i-2")]
    cpu = [AgentSample("CPUUtilization", 20.0), AgentSample("CPUUtilization", 60.0, "i-2")]
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


def test_a_look_that_there_was_no_room_for_leaves_no_empty_sample(world):
    host = "/aws/sagemaker/Endpoints"
    world.recorder = Recorder(world.clock, world.database, 1, first_variant)
    world.sampler = world.another("me")
    world.recorder.record("ExpiredRequests", VARIANT, 1)
    world.recorder.flush()
    world.agent.told = [AgentSample("CPUUtilization", 20.0)]
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
