"""A template's scaled endpoint: target, schedule, policies and an alarm."""

import pytest

from support.stacks import resource, served

DIMENSION = "sagemaker:variant:DesiredInstanceCount"
METRIC = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}


@pytest.fixture(scope="module")
def scaling(server):
    return server.client("application-autoscaling")


@pytest.fixture(scope="module")
def cloudwatch(server):
    return server.client("cloudwatch")


def template(url, target=70, action="morning", maximum=3):
    described = served(url)
    step = {"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}
    described["Resources"] |= {
        "Target": resource(
            "ApplicationAutoScaling::ScalableTarget",
            {
                "ServiceNamespace": "sagemaker",
                "ScalableDimension": DIMENSION,
                "ResourceId": {"Fn::Sub": "endpoint/${Endpoint.EndpointName}/variant/AllTraffic"},
                "MinCapacity": 1,
                "MaxCapacity": maximum,
                "ScheduledActions": [
                    {
                        "ScheduledActionName": action,
                        "Schedule": "cron(0 8 * * ? *)",
                        "Timezone": "Europe/Berlin",
                        "ScalableTargetAction": {"MinCapacity": 1},
                    }
                ],
            },
        ),
        "Tracking": resource(
            "ApplicationAutoScaling::ScalingPolicy",
            {
                "PolicyName": "tracking",
                "PolicyType": "TargetTrackingScaling",
                "ScalingTargetId": {"Ref": "Target"},
                "TargetTrackingScalingPolicyConfiguration": {
                    "TargetValue": target,
                    "PredefinedMetricSpecification": METRIC,
                },
            },
        ),
        "Step": resource(
            "ApplicationAutoScaling::ScalingPolicy",
            {
                "PolicyName": "step",
                "PolicyType": "StepScaling",
                "ScalingTargetId": {"Ref": "Target"},
                "StepScalingPolicyConfiguration": {
                    "AdjustmentType": "ChangeInCapacity",
                    "StepAdjustments": [step],
                },
            },
        ),
        "Alarm": resource(
            "CloudWatch::Alarm",
            {
                "Namespace": "mine",
                "MetricName": "m",
                "Statistic": "Average",
                "Period": 60,
                "EvaluationPeriods": 2,
                "Threshold": 1,
                "ComparisonOperator": "GreaterThanOrEqualToThreshold",
                "AlarmActions": [{"Ref": "Step"}],
                "Tags": [{"Key": "a", "Value": "b"}],
            },
        ),
    }
    described["Outputs"] |= {
        "AlarmName": {"Value": {"Ref": "Alarm"}},
        "Target": {"Value": {"Ref": "Target"}},
    }
    return described


def test_a_scaled_endpoint_is_made_changed_and_deleted(stack, deploy, scaling, cloudwatch):
    url = deploy.upload(f"{stack.name}/model.tar.gz")
    printed = stack.apply(template(url))
    outputs = dict(line.split() for line in printed.splitlines() if len(line.split()) == 2)
    resource_id, dimension, namespace = outputs["Target"].split("|")
    triple = {
        "ServiceNamespace": namespace,
        "ResourceId": resource_id,
        "ScalableDimension": dimension,
    }
    policies = {
        policy["PolicyName"]: policy
        for policy in scaling.describe_scaling_policies(**triple)["ScalingPolicies"]
    }
    assert policies.keys() == {"tracking", "step"}
    (alarm,) = cloudwatch.describe_alarms(AlarmNames=[outputs["AlarmName"]])["MetricAlarms"]
    assert alarm["AlarmActions"] == [policies["step"]["PolicyARN"]]
    (action,) = scaling.describe_scheduled_actions(**triple)["ScheduledActions"]
    assert (action["ScheduledActionName"], action["Timezone"]) == ("morning", "Europe/Berlin")
    assert "Nothing to do" in stack.apply()

    stack.apply(template(url, target=80, action="evening", maximum=4))
    (target,) = scaling.describe_scalable_targets(
        ServiceNamespace=namespace, ResourceIds=[resource_id]
    )["ScalableTargets"]
    assert target["MaxCapacity"] == 4
    (action,) = scaling.describe_scheduled_actions(**triple)["ScheduledActions"]
    assert action["ScheduledActionName"] == "evening"
    (high,) = [
        alarm
        for alarm in cloudwatch.describe_alarms(AlarmNamePrefix="TargetTracking-")["MetricAlarms"]
        if resource_id in alarm["AlarmName"] and "AlarmHigh" in alarm["AlarmName"]
    ]
    assert high["Threshold"] == 80

    stack.delete()
    found = scaling.describe_scalable_targets(ServiceNamespace=namespace, ResourceIds=[resource_id])
    assert found["ScalableTargets"] == []
    assert cloudwatch.describe_alarms(AlarmNames=[outputs["AlarmName"]])["MetricAlarms"] == []
