"""Application Auto Scaling by a real client: targets, policies, alarms, schedules, activities."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

DIMENSION = "sagemaker:variant:DesiredInstanceCount"
METRIC = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}


@pytest.fixture(scope="module")
def scaling(server):
    return server.client("application-autoscaling")


@pytest.fixture(scope="module")
def cloudwatch(server):
    return server.client("cloudwatch")


@pytest.fixture(scope="module")
def endpoint(deploy):
    deploy.endpoint("scaled")
    return "scaled"


@pytest.fixture
def target(scaling, endpoint):
    """A scalable target of the endpoint's variant, which is gone after the test."""
    triple = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/{endpoint}/variant/AllTraffic",
        "ScalableDimension": DIMENSION,
    }
    scaling.register_scalable_target(**triple, MinCapacity=1, MaxCapacity=3)
    yield triple
    scaling.deregister_scalable_target(**triple)


def track(scaling, target, name="per-instance", value=70.0):
    configuration = {"TargetValue": value, "PredefinedMetricSpecification": METRIC}
    return scaling.put_scaling_policy(
        **target,
        PolicyName=name,
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration=configuration,
    )


def activities(scaling, target, **more):
    return scaling.describe_scaling_activities(**target, **more)["ScalingActivities"]


def breach(cloudwatch, alarm, *values):
    """Say that the alarm has seen these values, oldest first, and is in ALARM now."""
    for state in ("OK", "ALARM"):
        cloudwatch.set_alarm_state(
            AlarmName=alarm,
            StateValue=state,
            StateReason="a test",
            StateReasonData=json.dumps({"version": "1.0", "recentDatapoints": values}),
        )


def test_a_tracking_policy_scales_out_and_in_by_its_alarms(
    scaling, cloudwatch, endpoint, target, deploy, wait_until
):
    answer = track(scaling, target)
    prefix = f"TargetTracking-endpoint/{endpoint}/variant/AllTraffic-"
    alarms = cloudwatch.describe_alarms(AlarmNamePrefix=prefix)["MetricAlarms"]
    high, low = sorted(alarms, key=lambda alarm: alarm["Threshold"], reverse=True)
    assert [alarm["AlarmARN"] for alarm in answer["Alarms"]] == [high["AlarmArn"], low["AlarmArn"]]
    assert (high["Threshold"], high["EvaluationPeriods"], high["Period"]) == (70, 3, 60)
    assert (low["Threshold"], low["EvaluationPeriods"]) == (63, 15)
    assert high["AlarmActions"][0].startswith(f"{answer['PolicyARN']}:createdBy/")

    breach(cloudwatch, high["AlarmName"], 100.0, 130.0)
    (activity,) = activities(scaling, target)
    assert activity["Description"] == "Setting desired instance count to 2."
    cause = f"monitor alarm {high['AlarmName']} in state ALARM triggered policy per-instance"
    assert activity["Cause"] == cause

    def has_ended():
        return activities(scaling, target)[0]["StatusCode"] == "Successful"

    wait_until(has_ended, 60)
    (variant,) = deploy.settled(endpoint)["ProductionVariants"]
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (2, 2)
    items = cloudwatch.describe_alarm_history(AlarmName=high["AlarmName"], HistoryItemType="Action")
    summary = items["AlarmHistoryItems"][0]["HistorySummary"]
    assert summary == f"Successfully executed action {high['AlarmActions'][0]}"

    # In the cooldown nothing is removed; without one all that is not needed.
    breach(cloudwatch, low["AlarmName"], 0.0, 0.0)
    assert len(activities(scaling, target, IncludeNotScaledActivities=True)) == 1
    configuration = {
        "TargetValue": 70.0,
        "PredefinedMetricSpecification": METRIC,
        "ScaleInCooldown": 0,
        "ScaleOutCooldown": 0,
    }
    scaling.put_scaling_policy(
        **target,
        PolicyName="per-instance",
        TargetTrackingScalingPolicyConfiguration=configuration,
    )
    breach(cloudwatch, low["AlarmName"], 0.0, 0.0)
    assert activities(scaling, target)[0]["Description"] == "Setting desired instance count to 1."
    wait_until(has_ended, 60)


def test_a_step_policy_is_called_by_an_alarm_of_the_users(scaling, cloudwatch, target):
    step = {"MetricIntervalLowerBound": 0, "ScalingAdjustment": 5}
    policy = scaling.put_scaling_policy(
        **target,
        PolicyName="step",
        PolicyType="StepScaling",
        StepScalingPolicyConfiguration={
            "AdjustmentType": "ExactCapacity",
            "StepAdjustments": [step],
        },
    )
    assert policy["Alarms"] == []
    cloudwatch.put_metric_alarm(
        AlarmName="of-a-step",
        Namespace="mine",
        MetricName="m",
        Statistic="Average",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
        AlarmActions=[policy["PolicyARN"]],
    )
    try:
        scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=1)
        breach(cloudwatch, "of-a-step", 1.0)
        newest = activities(scaling, target, IncludeNotScaledActivities=True)[0]
        assert newest["NotScaledReasons"] == [{"Code": "AlreadyAtMaxCapacity", "MaxCapacity": 1}]
    finally:
        cloudwatch.delete_alarms(AlarmNames=["of-a-step"])


def test_a_scheduled_action_sets_the_bounds(scaling, target, wait_until):
    soon = datetime.now(UTC) + timedelta(seconds=2)
    scaling.put_scheduled_action(
        **target,
        ScheduledActionName="soon",
        Schedule=f"at({soon:%Y-%m-%dT%H:%M:%S})",
        ScalableTargetAction={"MinCapacity": 1, "MaxCapacity": 2},
    )
    (action,) = scaling.describe_scheduled_actions(**target)["ScheduledActions"]
    assert action["ScheduledActionARN"].endswith(":scheduledActionName/soon")

    def maximum():
        found = scaling.describe_scalable_targets(
            ServiceNamespace="sagemaker", ResourceIds=[target["ResourceId"]]
        )
        return found["ScalableTargets"][0]["MaxCapacity"]

    wait_until(lambda: maximum() == 2, 60)
    newest = activities(scaling, target)[0]
    assert newest["Description"] == "Setting min capacity to 1 and max capacity to 2"
    scaling.delete_scheduled_action(**target, ScheduledActionName="soon")


def test_lists_are_paginated(scaling, target):
    step = {"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}
    for number in range(11):
        scaling.put_scaling_policy(
            **target,
            PolicyName=f"p{number:02}",
            PolicyType="StepScaling",
            StepScalingPolicyConfiguration={
                "AdjustmentType": "ChangeInCapacity",
                "StepAdjustments": [step],
            },
        )
    pages = list(scaling.get_paginator("describe_scaling_policies").paginate(**target))
    assert [len(page["ScalingPolicies"]) for page in pages] == [10, 1]
    for name in ("scalable_targets", "scheduled_actions", "scaling_activities"):
        list(scaling.get_paginator(f"describe_{name}").paginate(ServiceNamespace="sagemaker"))


def test_tags_of_a_target(scaling, target):
    (described,) = scaling.describe_scalable_targets(
        ServiceNamespace="sagemaker", ResourceIds=[target["ResourceId"]]
    )["ScalableTargets"]
    arn = described["ScalableTargetARN"]
    scaling.tag_resource(ResourceARN=arn, Tags={"team": "a"})
    assert scaling.list_tags_for_resource(ResourceARN=arn)["Tags"] == {"team": "a"}
    with pytest.raises(scaling.exceptions.ResourceNotFoundException) as caught:
        scaling.tag_resource(ResourceARN=arn + "0", Tags={"team": "a"})
    assert caught.value.response["ResourceName"] == arn + "0"


def test_errors_are_of_their_classes_and_have_messages(scaling, target):
    elsewhere = {**target, "ResourceId": "endpoint/none/variant/AllTraffic"}
    with pytest.raises(scaling.exceptions.ObjectNotFoundException) as caught:
        track(scaling, elsewhere)
    assert caught.value.response["Message"] == (
        "No scalable target registered for service namespace: sagemaker, resource ID: "
        f"endpoint/none/variant/AllTraffic, scalable dimension: {DIMENSION}"
    )
    with pytest.raises(scaling.exceptions.ValidationException, match="doesn't exist"):
        scaling.register_scalable_target(**elsewhere, MinCapacity=1, MaxCapacity=2)
    with pytest.raises(ClientError) as wrong:
        scaling.register_scalable_target(**{**target, "ScalableDimension": "x"})
    message = wrong.value.response["Error"]["Message"]
    assert message.startswith(
        "1 validation error detected: Value 'x' at 'scalableDimension' failed to satisfy "
        "constraint: Member must satisfy enum value set: ["
    )
    with pytest.raises(scaling.exceptions.InvalidNextTokenException):
        scaling.describe_scaling_policies(**target, NextToken="x")


def test_provisioned_concurrency_is_scaled(scaling, cloudwatch, deploy, wait_until):
    name = "scaled-serverless"
    deploy.model(name)
    config = {"MemorySizeInMB": 1024, "MaxConcurrency": 4, "ProvisionedConcurrency": 1}
    deploy.sagemaker.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[
            {"VariantName": "AllTraffic", "ModelName": name, "ServerlessConfig": config}
        ],
    )
    deploy.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    deploy.settled(name)
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/{name}/variant/AllTraffic",
        "ScalableDimension": "sagemaker:variant:DesiredProvisionedConcurrency",
    }
    scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=4)
    metric = {"PredefinedMetricType": "SageMakerVariantProvisionedConcurrencyUtilization"}
    answer = scaling.put_scaling_policy(
        **target,
        PolicyName="utilization",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": 0.5,
            "PredefinedMetricSpecification": metric,
            "ScaleOutCooldown": 1,
            "ScaleInCooldown": 1,
        },
    )
    breach(cloudwatch, answer["Alarms"][0]["AlarmName"], 1.5)
    (activity,) = activities(scaling, target)
    assert activity["Description"] == "Setting desired provisioned concurrency to 3."
    wait_until(lambda: activities(scaling, target)[0]["StatusCode"] == "Successful", 60)
    (variant,) = deploy.settled(name)["ProductionVariants"]
    assert variant["CurrentServerlessConfig"] == config | {"ProvisionedConcurrency": 3}
    deploy.sagemaker.delete_endpoint(EndpointName=name)


def test_a_deleted_endpoint_takes_all_with_it(scaling, cloudwatch, deploy):
    deploy.endpoint("scaled-away")
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/scaled-away/variant/AllTraffic",
        "ScalableDimension": DIMENSION,
    }
    scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=3)
    track(scaling, target)
    deploy.sagemaker.delete_endpoint(EndpointName="scaled-away")
    found = scaling.describe_scalable_targets(
        ServiceNamespace="sagemaker", ResourceIds=[target["ResourceId"]]
    )
    assert found["ScalableTargets"] == []
    prefix = "TargetTracking-endpoint/scaled-away/"
    assert cloudwatch.describe_alarms(AlarmNamePrefix=prefix)["MetricAlarms"] == []
