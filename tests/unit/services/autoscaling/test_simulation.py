"""Loads replayed through policies."""

from sagehen.services.autoscaling.policies.facts import StepAdjustment, StepScaling, TargetTracking
from sagehen.services.autoscaling.simulated_alarms import tracking_alarms
from sagehen.services.autoscaling.simulation import (
    SimulatedAlarm,
    SimulatedPolicy,
    Simulation,
    simulate,
)

METRIC = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
HIGH_RESOLUTION = {
    "PredefinedMetricType": "SageMakerVariantConcurrentRequestsPerModelHighResolution"
}


def tracking(target=1000.0, metric=METRIC, **more):
    configuration = {"TargetValue": target, "PredefinedMetricSpecification": metric}
    return SimulatedPolicy(
        name="p",
        configuration=TargetTracking(target_value=target, **more),
        alarms=tracking_alarms("p", configuration),
    )


def run(loads, *policies, **more):
    given = {"minimum": 1, "maximum": 10, "initial": 1, "start_seconds": 60.0} | more
    return simulate(Simulation(policies=policies, loads=tuple(loads), **given))


def changes(result):
    return [(m.seconds, m.desired) for m in result.moments if m.event is not None]


def test_a_step_of_load_is_followed_and_left_again():
    result = run([100] * 10 + [4000] * 20 + [100] * 30, tracking())
    # Three minutes above the target; fifteen below it, all of them at the lower load.
    assert changes(result) == [(13 * 60, 4), (45 * 60, 1)]
    minutes = result.minutes
    assert len(minutes) == 60
    assert [minutes[number].running for number in (12, 13, 14, 44, 45)] == [1, 1, 4, 4, 1]
    assert (minutes[12].metric, minutes[14].metric) == (4000, 1000)
    assert result.changes == 2
    assert result.instance_seconds == 60 * (13 + 32 * 4 + 15)


def test_a_steady_load_changes_nothing():
    result = run([950] * 60, tracking())
    assert (changes(result), result.instance_seconds) == ([], 3600)


def test_in_a_cooldown_what_was_added_counts():
    result = run([1500] * 3 + [4500] * 20, tracking(scale_out_cooldown=300))
    assert changes(result) == [(180, 2), (300, 3), (660, 5)]


def test_a_high_resolution_metric_is_followed_sooner():
    result = run([40] * 30, tracking(10.0, HIGH_RESOLUTION))
    assert changes(result) == [(30, 4)]


def test_a_step_policy_has_the_alarm_that_is_given():
    steps = (StepAdjustment(scaling_adjustment=2, metric_interval_lower_bound=0),)
    alarm = SimulatedAlarm(
        name="a",
        comparison="GreaterThanOrEqualToThreshold",
        threshold=5,
        period_seconds=60,
        periods=2,
        datapoints=2,
    )
    policy = SimulatedPolicy(
        name="s",
        configuration=StepScaling(
            adjustment_type="ChangeInCapacity", step_adjustments=steps, cooldown=0
        ),
        alarms=(alarm,),
    )
    result = run([0, 10, 10, 10, 0, 0], policy, start_seconds=0.0)
    assert changes(result) == [(180, 3)]
