"""A turn of the sampling loop after another control has led."""

from sagehen.services.monitoring.metering import sampler as module
from support.sampling_world import START, AgentSample


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
    world.agent.told = [AgentSample("CPUUtilization", 30.0)]
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
    loading = [AgentSample("ModelLoadingTimeSum", 500), AgentSample("ModelLoadingTimeCount", 5)]
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
        AgentSample("ModelLoadingTimeSum", 50, "i-2"),
        AgentSample("ModelLoadingTimeCount", 1, "i-2"),
    ]
    world.turn()
    assert world.numbers("ModelLoadingTime", "Microseconds")[:2] == (7, 750)
