"""Alarms, policies and fleets together: recipes by a controlled clock, and kills of control."""

import runpy
from pathlib import Path

import pytest
from sqlalchemy import Connection

from support.endpoints import in_service
from support.fixtures.api import server
from support.scaling_world import ScalingWorld

__all__ = ["server"]

EXAMPLES = Path(__file__).parents[4] / "examples"

TARGET = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/e/variant/AllTraffic",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
METRIC = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
DIMENSIONS = {"EndpointName": "e", "VariantName": "AllTraffic"}


@pytest.fixture
def world(server):
    server.model()
    server.config("c")
    in_service(server)
    return ScalingWorld(server)


@pytest.fixture
def scaling(world):
    client = world.client("application-autoscaling")
    client.register_scalable_target(**TARGET, MinCapacity=1, MaxCapacity=6)
    return client


def track(scaling, target=100.0, **more):
    return scaling.put_scaling_policy(
        **TARGET,
        PolicyName="per-instance",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": target,
            "PredefinedMetricSpecification": METRIC,
            **more,
        },
    )


def serve(world, load, minutes):
    """So many minutes of this load on all instances together; the count after each."""
    counts = []
    for _ in range(minutes):
        each = load / max(1, world.count_of("e"))
        world.record("InvocationsPerInstance", DIMENSIONS, each)
        world.end_minute()
        counts.append(world.count_of("e"))
    return counts


def activities(scaling, **more):
    found = scaling.describe_scaling_activities(**TARGET, **more)["ScalingActivities"]
    return [(one["Description"], one["StatusCode"]) for one in found]


def test_target_tracking_follows_a_load_and_leaves_it_again(world, scaling):
    track(scaling)
    # Three minutes above the target of 100 for each instance, then at once what is needed.
    assert serve(world, 350, 6) == [1, 1, 4, 4, 4, 4]
    # Fifteen minutes below 90 % of it; the cooldown has passed by then.
    assert serve(world, 150, 20) == [4] * 14 + [2] * 6
    assert serve(world, 0, 20)[-1] == 1
    assert activities(scaling) == [
        ("Setting desired instance count to 1.", "Successful"),
        ("Setting desired instance count to 2.", "Successful"),
        ("Setting desired instance count to 4.", "Successful"),
    ]


def test_a_metric_that_stops_scales_nothing(world, scaling):
    track(scaling)
    serve(world, 350, 3)
    for _ in range(40):
        world.end_minute()
    assert world.count_of("e") == 4


def test_what_is_suspended_goes_on_at_once_when_resumed(world, scaling):
    track(scaling)
    scaling.register_scalable_target(**TARGET, SuspendedState={"DynamicScalingOutSuspended": True})
    assert serve(world, 350, 6) == [1] * 6
    scaling.register_scalable_target(**TARGET, SuspendedState={"DynamicScalingOutSuspended": False})
    assert serve(world, 350, 1) == [4]


def test_missing_capacity_is_told_and_tried_again(world, scaling):
    track(scaling)
    world.server.configure(max_endpoint_instances=2)
    assert serve(world, 350, 5) == [1] * 5
    assert {status for _, status in activities(scaling)} == {"Failed"}
    assert len(activities(scaling)) == 3
    world.server.configure(max_endpoint_instances=10)
    assert serve(world, 350, 1) == [4]


class TestAsynchronousRecipe:
    """The calls of examples/seed_async_autoscaling.py."""

    @pytest.fixture
    def world(self, server):
        server.model()
        output = {"OutputConfig": {"S3OutputPath": "s3://bucket/out/"}}
        server.config("a", server.variant("variant1"), AsyncInferenceConfig=output)
        in_service(server, "async-scaled", "a")
        return ScalingWorld(server)

    @pytest.fixture
    def scaling(self, world, monkeypatch):
        monkeypatch.syspath_prepend(EXAMPLES)
        recipe = runpy.run_path(str(EXAMPLES / "seed_async_autoscaling.py"))
        client = world.client("application-autoscaling")
        recipe["scale"](client, world.client("cloudwatch"))
        return client

    def wait(self, world, backlog, minutes):
        """So many minutes with this backlog; the count after each."""
        counts = []
        endpoint = {"EndpointName": "async-scaled"}
        for _ in range(minutes):
            count = world.count_of("async-scaled")
            world.record("ApproximateBacklogSizePerInstance", endpoint, backlog / max(count, 1))
            has_none = float(backlog > 0 and count == 0)
            world.record("HasBacklogWithoutCapacity", endpoint, has_none)
            world.end_minute()
            counts.append(world.count_of("async-scaled"))
        return counts

    def test_it_goes_to_zero_and_leaves_it_for_one_request(self, world, scaling):
        assert self.wait(world, 0, 16) == [1] * 14 + [0, 0]
        assert self.wait(world, 1, 3) == [0, 1, 1]
        assert self.wait(world, 0, 20)[-1] == 0

    def test_a_backlog_gets_as_many_instances_as_it_needs(self, world, scaling):
        self.wait(world, 0, 16)
        # From zero by the step policy; then what five requests for each instance need.
        assert self.wait(world, 22, 10)[:2] == [0, 1]
        assert world.count_of("async-scaled") == 5


class TestMultiModelRecipe:
    """The calls of examples/seed_multi_model_autoscaling.py."""

    @pytest.fixture
    def world(self, server):
        server.model()
        server.config("a", server.variant("AllTraffic"))
        in_service(server, "models-scaled", "a")
        return ScalingWorld(server)

    def test_the_calls_to_all_models_count_together(self, world, monkeypatch):
        monkeypatch.syspath_prepend(EXAMPLES)
        recipe = runpy.run_path(str(EXAMPLES / "seed_multi_model_autoscaling.py"))
        recipe["scale"](world.client("application-autoscaling"))
        counts = []
        for calls in [50.0] * 4 + [0.0] * 16:
            each = calls / world.count_of("models-scaled")
            dimensions = {"EndpointName": "models-scaled", "VariantName": "AllTraffic"}
            world.record("InvocationsPerInstance", dimensions, each)
            world.end_minute()
            counts.append(world.count_of("models-scaled"))
        assert counts[:4] == [1, 1, 3, 3]
        assert counts[-1] == 1


class _KilledError(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 7))
def test_a_kill_at_any_commit_loses_no_activity_and_repeats_none(
    world, scaling, monkeypatch, moment, number
):
    """The commits are those of an alarm that is evaluated, of an endpoint that settles and of the
    loop that ends the activity; what has not happened by then happens after the restart."""
    track(scaling)
    serve(world, 350, 2)
    world.record("InvocationsPerInstance", DIMENSIONS, 350)
    world.clock.seconds += 60
    commit, commits = Connection.commit, []

    def killed(connection):
        commits.append(connection)
        if len(commits) == number and moment == "before":
            raise _KilledError
        commit(connection)
        if len(commits) == number:
            raise _KilledError

    kills = 0
    with monkeypatch.context() as patched:
        patched.setattr(Connection, "commit", killed)
        for _ in range(3):
            try:
                world.take_steps()
            except _KilledError:
                kills += 1
                world.restart()
    assert kills == (len(commits) >= number)
    assert number > 3 or kills == 1
    assert world.count_of("e") == 4
    assert activities(scaling) == [("Setting desired instance count to 4.", "Successful")]
    cloudwatch = world.client("cloudwatch")
    (high,) = [
        alarm["AlarmName"]
        for alarm in cloudwatch.describe_alarms(AlarmNamePrefix="TargetTracking-")["MetricAlarms"]
        if "AlarmHigh" in alarm["AlarmName"]
    ]
    items = cloudwatch.describe_alarm_history(AlarmName=high, HistoryItemType="Action")
    (item,) = items["AlarmHistoryItems"]
    assert item["HistorySummary"].startswith("Successfully executed action arn:aws:autoscaling:")
