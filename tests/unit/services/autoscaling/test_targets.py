"""Scalable targets: register, change, describe, tag, deregister."""

from functools import partial

import pytest

from sagehen.services.autoscaling import store
from sagehen.services.autoscaling.dimensions import COPIES, PROVISIONED_CONCURRENCY
from sagehen.services.autoscaling.tables import TARGETS
from sagehen.wire.errors import AwsError

RESOURCE = "endpoint/e/variant/v"


def described(scaling):
    return scaling.DescribeScalableTargets()["ScalableTargets"]


def test_a_registered_target_is_described(scaling):
    arn = scaling.register(1, 4, RoleARN="arn:aws:iam::1:role/mine")
    (target,) = described(scaling)
    created_at = target.pop("CreationTime")
    assert created_at.timestamp() == scaling.clock.now()
    assert target == {
        "ServiceNamespace": "sagemaker",
        "ResourceId": RESOURCE,
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        "MinCapacity": 1,
        "MaxCapacity": 4,
        "RoleARN": "arn:aws:iam::000000000000:role/aws-service-role/"
        "sagemaker.application-autoscaling.amazonaws.com/"
        "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint",
        "SuspendedState": {
            "DynamicScalingInSuspended": False,
            "DynamicScalingOutSuspended": False,
            "ScheduledScalingSuspended": False,
        },
        "ScalableTargetARN": arn,
    }
    prefix, _, unique = arn.rpartition("/")
    assert prefix == "arn:aws:application-autoscaling:us-east-1:000000000000:scalable-target"
    assert len(unique) == 34
    assert scaling.activities() == []


def test_a_second_call_changes_only_what_it_names(scaling):
    arn = scaling.register(1, 4, SuspendedState={"ScheduledScalingSuspended": True})
    suspended = {"DynamicScalingInSuspended": True}
    answer = scaling.RegisterScalableTarget(MaxCapacity=9, SuspendedState=suspended)
    assert answer == {"ScalableTargetARN": arn}
    (target,) = described(scaling)
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 9)
    assert target["SuspendedState"] == {
        "DynamicScalingInSuspended": True,
        "DynamicScalingOutSuspended": False,
        "ScheduledScalingSuspended": True,
    }


@pytest.mark.parametrize(
    ("bounds", "count", "cause"),
    [
        ((3, 5), 3, "minimum capacity was set to 3"),
        ((0, 1), 1, "maximum capacity was set to 1"),
    ],
)
def test_registering_brings_the_count_between_the_bounds(scaling, bounds, count, cause):
    scaling.fleet.least = 0
    scaling.register(*bounds)
    assert scaling.fleet.counts == {RESOURCE: count}
    (activity,) = scaling.activities()
    assert activity["Description"] == f"Setting desired instance count to {count}."
    assert (activity["Cause"], activity["StatusCode"]) == (cause, "InProgress")
    scaling.settle()
    (activity,) = scaling.activities()
    assert (activity["StatusCode"], activity["StatusMessage"]) == (
        "Successful",
        f"Successfully set desired instance count to {count}. Change successfully fulfilled by "
        "sagemaker.",
    )


def test_a_busy_resource_is_brought_between_the_bounds_later(scaling):
    scaling.fleet.settled = False
    scaling.register(3, 5)
    scaling.look()
    assert (scaling.fleet.counts, scaling.activities()) == ({RESOURCE: 2}, [])
    scaling.settle()
    assert scaling.fleet.counts == {RESOURCE: 3}


def test_a_new_deployment_is_brought_between_the_bounds_but_a_count_set_by_hand_stays(scaling):
    scaling.register(3, 5)
    scaling.settle()
    scaling.fleet.counts[RESOURCE] = 1
    scaling.look()
    assert scaling.fleet.counts == {RESOURCE: 1}
    scaling.fleet.deployment = "d2"
    scaling.look()
    assert scaling.fleet.counts == {RESOURCE: 3}


def test_a_refused_count_fails_the_activity_as_sagemaker_says_it(scaling):
    text = "The account-level service limit is reached."
    scaling.fleet.refusal = AwsError("ResourceLimitExceeded", text, 400)
    scaling.register(110, 120)
    (activity,) = scaling.activities()
    assert activity["StatusCode"] == "Failed"
    assert activity["StatusMessage"].startswith(
        f"Failed to set desired instance count to 110. Reason: {text} (Service: AmazonSageMaker; "
        "Status Code: 400; Error Code: ResourceLimitExceeded; Request ID: "
    )
    assert activity["StatusMessage"].endswith(").")
    assert activity["EndTime"] == activity["StartTime"]


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"MinCapacity": 1}, "MaxCapacity is required"),
        ({"MaxCapacity": 1}, "MinCapacity is required"),
        ({"MinCapacity": 3, "MaxCapacity": 2}, "MinCapacity must not be greater than MaxCapacity"),
        ({"MinCapacity": -1, "MaxCapacity": 2}, "MinCapacity must be from 0"),
        ({"MinCapacity": 0, "MaxCapacity": 2}, "The minimum value that the resource can accept"),
        ({"MinCapacity": 0, "MaxCapacity": 0}, "MaxCapacity must be at least 1"),
        ({"ResourceId": "endpoint/other/variant/v"}, "SageMaker endpoint or variant doesn't exist"),
        ({"ResourceId": "service/a/b"}, "Unsupported service namespace, resource type or"),
        (
            {"ScalableDimension": "ecs:service:DesiredCount"},
            "Unsupported service namespace, resource type or scalable dimension",
        ),
        ({"ServiceNamespace": "ecs"}, "Not implemented by Sagehen: scaling resources of ecs"),
        (
            {"ScalableDimension": COPIES, "ResourceId": "inference-component/c"},
            f"Not implemented by Sagehen: the scalable dimension {COPIES}",
        ),
    ],
)
def test_bad_targets_are_refused(scaling, refused, params, reason):
    given = (
        params if "Capacity" in "".join(params) else {"MinCapacity": 1, "MaxCapacity": 2} | params
    )
    assert refused(lambda: scaling.RegisterScalableTarget(**given)).startswith(reason)
    assert described(scaling) == []


def test_what_cannot_be_a_target_is_refused(scaling, refused):
    scaling.fleet.unregistrable = "You cannot register it."
    assert refused(scaling.register) == "You cannot register it."


def test_both_dimensions_of_a_variant_are_separate_targets(scaling):
    scaling.register()
    scaling.register(ScalableDimension=PROVISIONED_CONCURRENCY)
    assert len(scaling.DescribeScalableTargets(ScalableDimension=None)["ScalableTargets"]) == 2


def test_targets_are_listed_in_pages_and_by_id(scaling, refused):
    names = [f"endpoint/e{number}/variant/v" for number in range(3)]
    scaling.fleet.counts = dict.fromkeys(names, 1)
    for name in names:
        scaling.register(ResourceId=name)
    page = scaling.DescribeScalableTargets(MaxResults=2)
    assert [target["ResourceId"] for target in page["ScalableTargets"]] == names[:2]
    rest = scaling.DescribeScalableTargets(MaxResults=2, NextToken=page["NextToken"])
    assert [target["ResourceId"] for target in rest["ScalableTargets"]] == names[2:]
    assert "NextToken" not in rest
    chosen = scaling.DescribeScalableTargets(ResourceIds=[names[1], "endpoint/no/variant/v"])
    assert [target["ResourceId"] for target in chosen["ScalableTargets"]] == names[1:2]
    assert "between 1 and 50" in refused(lambda: scaling.DescribeScalableTargets(MaxResults=51))
    for token in ("x", "WzFd", "eyJhIjoxfQ=="):
        refused(
            partial(scaling.DescribeScalableTargets, NextToken=token), "InvalidNextTokenException"
        )


def test_deregistering_takes_policies_alarms_actions_and_tags_and_leaves_the_count(
    scaling, refused
):
    arn = scaling.register(Tags={"a": "b"})
    scaling.track()
    scaling.PutScheduledAction(
        ScheduledActionName="a",
        Schedule="rate(1 hour)",
        ScalableTargetAction={"MinCapacity": 1},
    )
    assert len(scaling.alarms.definitions) == 2
    assert scaling.DeregisterScalableTarget() == {}
    assert (described(scaling), scaling.alarms.definitions) == ([], {})
    assert scaling.DescribeScalingPolicies()["ScalingPolicies"] == []
    assert scaling.DescribeScheduledActions()["ScheduledActions"] == []
    assert scaling.fleet.counts == {RESOURCE: 2}
    gone = refused(scaling.DeregisterScalableTarget, "ObjectNotFoundException")
    assert gone == (
        "No scalable target registered for service namespace: sagemaker, resource ID: "
        "endpoint/e/variant/v, scalable dimension: sagemaker:variant:DesiredInstanceCount"
    )
    refused(lambda: scaling.ListTagsForResource(ResourceARN=arn), "ResourceNotFoundException")


def test_tags_of_a_target(scaling, refused):
    arn = scaling.register(Tags={"a": "1"})
    scaling.TagResource(ResourceARN=arn, Tags={"b": "2", "a": "3"})
    assert scaling.ListTagsForResource(ResourceARN=arn) == {"Tags": {"a": "3", "b": "2"}}
    scaling.UntagResource(ResourceARN=arn, TagKeys=["a", "c"])
    assert scaling.ListTagsForResource(ResourceARN=arn) == {"Tags": {"b": "2"}}
    many = {str(number): "" for number in range(50)}
    refused(lambda: scaling.TagResource(ResourceARN=arn, Tags=many), "TooManyTagsException")
    refused(lambda: scaling.TagResource(ResourceARN=arn, Tags={"aws:x": "y"}))
    refused(lambda: scaling.register(Tags=many), "TooManyTagsException")


def test_there_are_so_many_targets(scaling, refused, monkeypatch):
    monkeypatch.setattr("sagehen.services.autoscaling.targets.MAX_TARGETS", 1)
    scaling.register()
    scaling.register(2, 3)
    other = {"ScalableDimension": PROVISIONED_CONCURRENCY}
    refused(lambda: scaling.register(**other), "LimitExceededException")
    with scaling.database.read() as connection:
        assert store.count(connection, TARGETS) == 1
