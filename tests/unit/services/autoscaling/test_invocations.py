"""An alarm calls a policy: what is written, and what is not."""

import logging

import pytest

from sagehen.services.autoscaling.autoscaler import Autoscaler

RESOURCE = "endpoint/e/variant/v"


@pytest.fixture
def scaling(scaling):
    scaling.register()
    return scaling


def action_of(scaling, kind="AlarmHigh"):
    (name,) = [name for name in scaling.alarms.definitions if kind in name]
    return scaling.alarms.definitions[name]["AlarmActions"][0]


def test_a_scale_out_sets_the_count_and_is_an_activity(scaling):
    scaling.track("my-policy")
    assert scaling.alarm(action_of(scaling), 120, 110) is None
    assert scaling.fleet.counts == {RESOURCE: 5}
    (activity,) = scaling.activities()
    assert activity["Description"] == "Setting desired instance count to 5."
    assert activity["Cause"] == "monitor alarm high in state ALARM triggered policy my-policy"
    assert activity["StatusCode"] == "InProgress"
    assert "EndTime" not in activity
    scaling.pass_time(30)
    scaling.settle()
    (activity,) = scaling.activities()
    assert activity["StatusCode"] == "Successful"
    assert (activity["EndTime"] - activity["StartTime"]).total_seconds() == 30


def test_while_it_is_under_way_nothing_is_scaled_and_the_reason_is_kept_once(scaling):
    scaling.track()
    for _ in range(3):
        scaling.alarm(action_of(scaling), 120)
        scaling.pass_time(60)
    assert scaling.fleet.changes == 1
    assert len(scaling.activities()) == 1
    refused, activity = scaling.activities(IncludeNotScaledActivities=True)
    assert activity["StatusCode"] == "InProgress"
    assert refused["NotScaledReasons"] == [{"Code": "TargetServicePutResourceAsUnscalable"}]
    assert refused["Description"] == "Attempting to scale due to alarm triggered"
    assert refused["Cause"] == activity["Cause"]
    assert refused["StatusCode"] == "Failed"
    assert not {"EndTime", "StatusMessage"} & refused.keys()


def test_a_reason_that_changes_is_kept_again(scaling):
    scaling.register(1, 2)
    scaling.track()
    scaling.alarm(action_of(scaling), 120)
    scaling.alarm(action_of(scaling), 120)
    scaling.register(1, 3)
    scaling.alarm(action_of(scaling), 120)
    scaling.settle()
    scaling.alarm(action_of(scaling), 120)
    found = scaling.activities(IncludeNotScaledActivities=True)
    reasons = [activity.get("NotScaledReasons") for activity in found]
    assert reasons == [
        [{"Code": "AlreadyAtMaxCapacity", "MaxCapacity": 3}],
        None,
        [{"Code": "AlreadyAtMaxCapacity", "MaxCapacity": 2}],
    ]


def test_the_cooldown_counts_from_the_end_of_the_activity(scaling):
    scaling.track()
    scaling.alarm(action_of(scaling), 60)
    scaling.pass_time(400)
    scaling.settle()
    scaling.pass_time(299)
    scaling.alarm(action_of(scaling), 60)
    assert scaling.fleet.counts == {RESOURCE: 3}
    scaling.pass_time(1)
    scaling.alarm(action_of(scaling), 60)
    assert scaling.fleet.counts == {RESOURCE: 4}


def test_an_alarm_ends_the_activity_that_the_loop_has_not_yet_ended(scaling):
    scaling.track(ScaleOutCooldown=0)
    scaling.alarm(action_of(scaling), 60)
    scaling.fleet.settled = True
    scaling.alarm(action_of(scaling), 60)
    statuses = [activity["StatusCode"] for activity in scaling.activities()]
    assert statuses == ["InProgress", "Successful"]


def test_a_scale_in_needs_every_tracking_policy_now(scaling):
    scaling.fleet.counts[RESOURCE] = 4
    scaling.track("a")
    metric = {"MetricName": "m", "Namespace": "n", "Statistic": "Average"}
    scaling.PutScalingPolicy(
        PolicyName="b",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": 5.0,
            "CustomizedMetricSpecification": metric,
        },
    )
    arns = {
        p["PolicyName"]: p["PolicyARN"]
        for p in scaling.DescribeScalingPolicies()["ScalingPolicies"]
    }
    scaling.alarm(arns["b"], 1, low=True, threshold=4.5)
    scaling.pass_time(90)
    scaling.alarm(arns["a"], 10, low=True, threshold=45)
    assert scaling.fleet.counts == {RESOURCE: 4}, "what b said has passed"
    scaling.alarm(arns["b"], 3, low=True, threshold=4.5)
    assert scaling.fleet.counts == {RESOURCE: 3}, "b needs three, and a one"
    (activity,) = scaling.activities()
    assert activity["Cause"].endswith("triggered policy b")


def test_a_step_policy_is_called_by_its_bare_arn(scaling):
    scaling.fleet.counts[RESOURCE], scaling.fleet.least = 0, 0
    scaling.register(0, 5)
    arn = scaling.step()["PolicyARN"]
    assert scaling.alarm(arn, 1, threshold=1) is None
    assert scaling.fleet.counts == {RESOURCE: 1}


def test_calls_that_cannot_be_run_say_why(scaling):
    arn = scaling.step()["PolicyARN"]
    assert scaling.alarm(arn) == "Metric data points must be provided"
    other = arn.replace("policyName/s", "policyName/t")
    assert scaling.alarm(other, 60) == f"No scaling policy found for the ARN {other}"
    assert "No scaling policy found" in scaling.alarm("arn:aws:autoscaling:x", 60)
    scaling.fleet.counts.clear()
    assert scaling.alarm(arn, 60) == f"The resource {RESOURCE} does not exist"
    assert scaling.activities(IncludeNotScaledActivities=True) == []


def test_each_decision_is_one_line_with_its_inputs(scaling, caplog):
    arn = scaling.track(ScaleOutCooldown=0)["PolicyARN"]
    with caplog.at_level(logging.INFO):
        scaling.alarm(arn, 120, 60)
    (line,) = [one for one in caplog.records if getattr(one, "action", "") == "scaling_decision"]
    inputs = ("resource", "policy", "values", "threshold", "capacity", "minimum", "maximum")
    assert [getattr(line, name) for name in inputs] == [RESOURCE, "p", [120, 60], 50, 2, 1, 10]
    assert (line.desired, line.not_scaled) == (5, None)
    assert line.reason == "The metric is 120, above the threshold 50 of alarm high."


def test_suspension_stops_policies_and_ends_at_once(scaling):
    arn = scaling.track()["PolicyARN"]
    scaling.RegisterScalableTarget(SuspendedState={"DynamicScalingOutSuspended": True})
    scaling.alarm(arn, 60)
    assert scaling.fleet.changes == 0
    scaling.RegisterScalableTarget(SuspendedState={"DynamicScalingOutSuspended": False})
    scaling.alarm(arn, 60)
    assert scaling.fleet.changes == 1


class _KilledError(Exception):
    pass


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_kill_within_the_transaction_leaves_nothing_and_the_next_call_does_it_all(
    scaling, step, monkeypatch
):
    """The count of the fleet here is no row; `test_scaling.py` of hosting has those."""
    arn = scaling.track()["PolicyARN"]
    change = Autoscaler.change

    def killed(*arguments, **more):
        if step == "after":
            change(*arguments, **more)
        raise _KilledError

    monkeypatch.setattr(Autoscaler, "change", killed)
    with pytest.raises(_KilledError):
        scaling.alarm(arn, 60)
    assert scaling.activities(IncludeNotScaledActivities=True) == []
    monkeypatch.undo()
    scaling.fleet.counts[RESOURCE], scaling.fleet.settled = 2, True
    scaling.alarm(arn, 60)
    assert len(scaling.activities()) == 1
