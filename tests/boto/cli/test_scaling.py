"""Application Auto Scaling and CloudWatch's alarms with the AWS CLI, as AWS's guides type it."""

import json

import pytest

from support.server import eventually

NAMESPACE = "--service-namespace sagemaker"
TARGET = (
    f"{NAMESPACE} --resource-id endpoint/cli-scaled/variant/AllTraffic "
    "--scalable-dimension sagemaker:variant:DesiredInstanceCount"
)
ARN = "arn:aws:cloudwatch:us-east-1:000000000000:alarm:"


@pytest.fixture(scope="module")
def endpoint(deploy):
    deploy.endpoint("cli-scaled")


def test_a_variant_is_scaled(cli, endpoint):
    scaling = "application-autoscaling"
    registered = cli.json(
        f"{scaling} register-scalable-target {TARGET} --min-capacity 1 --max-capacity 3 "
        "--tags team=a"
    )
    arn = registered["ScalableTargetARN"]
    assert cli.json(f"{scaling} list-tags-for-resource --resource-arn {arn}") == {
        "Tags": {"team": "a"}
    }
    metric = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
    tracking = {"TargetValue": 70.0, "PredefinedMetricSpecification": metric}
    policy = cli.json(
        f"{scaling} put-scaling-policy {TARGET} --policy-name cli --policy-type "
        "TargetTrackingScaling --target-tracking-scaling-policy-configuration",
        json.dumps(tracking),
    )
    assert len(policy["Alarms"]) == 2
    listed = cli.json(f"{scaling} describe-scaling-policies {TARGET}")["ScalingPolicies"]
    assert [one["PolicyARN"] for one in listed] == [policy["PolicyARN"]]
    assert listed[0]["TargetTrackingScalingPolicyConfiguration"] == tracking

    cli(
        f"{scaling} put-scheduled-action {TARGET} --scheduled-action-name cli --timezone "
        "Europe/Berlin --scalable-target-action MinCapacity=2,MaxCapacity=3 --schedule",
        "cron(0 9 * * ? *)",
    )
    (action,) = cli.json(f"{scaling} describe-scheduled-actions {TARGET}")["ScheduledActions"]
    assert action["Schedule"] == "cron(0 9 * * ? *)"
    assert action["ScalableTargetAction"] == {"MinCapacity": 2, "MaxCapacity": 3}

    # Suspended without new bounds, then pulled to a new minimum.
    suspended = {"DynamicScalingInSuspended": True, "ScheduledScalingSuspended": True}
    command = f"{scaling} register-scalable-target {TARGET} --min-capacity 2 --suspended-state"
    cli(command, json.dumps(suspended))
    (target,) = cli.json(
        f"{scaling} describe-scalable-targets {NAMESPACE} --resource-ids "
        "endpoint/cli-scaled/variant/AllTraffic"
    )["ScalableTargets"]
    assert (target["MinCapacity"], target["MaxCapacity"]) == (2, 3)
    assert target["SuspendedState"] == suspended | {"DynamicScalingOutSuspended": False}

    def newest():
        listed = cli.json(f"{scaling} describe-scaling-activities {TARGET} --max-results 1")
        return listed["ScalingActivities"][0]

    eventually(lambda: newest()["StatusCode"] == "Successful")
    assert newest()["Description"] == "Setting desired instance count to 2."

    cli(f"{scaling} delete-scheduled-action {TARGET} --scheduled-action-name cli")
    cli(f"{scaling} delete-scaling-policy {TARGET} --policy-name cli")
    prefix = "TargetTracking-endpoint/cli-scaled/"
    left = cli.json(f"cloudwatch describe-alarms --alarm-name-prefix {prefix}")
    assert left["MetricAlarms"] == []
    cli(f"{scaling} deregister-scalable-target {TARGET}")
    status, _, wrong = cli.run(f"{scaling} deregister-scalable-target {TARGET}")
    assert status != 0
    assert "(ObjectNotFoundException)" in wrong
    assert "No scalable target" in wrong


def test_alarms_go_through_their_states(cli):
    cloudwatch = "cloudwatch"
    dimensions = "Name=EndpointName,Value=none Name=VariantName,Value=AllTraffic"
    cli(
        f"{cloudwatch} put-metric-alarm --alarm-name cli-high --namespace AWS/SageMaker "
        f"--metric-name Invocations --dimensions {dimensions} --statistic Sum --period 60 "
        "--evaluation-periods 2 --datapoints-to-alarm 1 --threshold 5 --treat-missing-data ignore "
        "--comparison-operator GreaterThanThreshold --tags Key=team,Value=a"
    )
    cli(f"{cloudwatch} put-composite-alarm --alarm-name cli-any --alarm-rule", "ALARM(cli-high)")
    cli(f"{cloudwatch} wait alarm-exists --alarm-names cli-high")
    composite_only = "--alarm-names cli-any --alarm-types CompositeAlarm"
    cli(f"{cloudwatch} wait composite-alarm-exists {composite_only}")
    reason = ("--state-reason", "by hand")
    cli(f"{cloudwatch} set-alarm-state --alarm-name cli-high --state-value ALARM", *reason)
    both = cli.json(
        f"{cloudwatch} describe-alarms --alarm-names cli-high cli-any "
        "--alarm-types MetricAlarm CompositeAlarm"
    )
    (metric,), (composite,) = both["MetricAlarms"], both["CompositeAlarms"]
    assert (metric["AlarmArn"], metric["StateValue"]) == (f"{ARN}cli-high", "ALARM")
    assert metric["StateReason"] == "by hand"
    assert (composite["AlarmArn"], composite["StateValue"]) == (f"{ARN}cli-any", "ALARM")
    found = cli.json(
        f"{cloudwatch} describe-alarms-for-metric --namespace AWS/SageMaker "
        f"--metric-name Invocations --dimensions {dimensions}"
    )
    assert [one["AlarmName"] for one in found["MetricAlarms"]] == ["cli-high"]

    cli(f"{cloudwatch} disable-alarm-actions --alarm-names cli-high")
    cli(f"{cloudwatch} set-alarm-state --alarm-name cli-high --state-value OK", *reason)
    history = cli.json(
        f"{cloudwatch} describe-alarm-history --alarm-name cli-high --scan-by TimestampAscending"
    )
    assert [item["HistorySummary"] for item in history["AlarmHistoryItems"]] == [
        'Alarm "cli-high" created',
        "Alarm updated from INSUFFICIENT_DATA to ALARM",
        "Alarm updated from ALARM to OK",
    ]
    cli(f"{cloudwatch} enable-alarm-actions --alarm-names cli-high")
    (metric,) = cli.json(f"{cloudwatch} describe-alarms --alarm-names cli-high")["MetricAlarms"]
    assert (metric["ActionsEnabled"], metric["StateValue"]) == (True, "OK")

    status, _, wrong = cli.run(f"{cloudwatch} delete-alarms --alarm-names cli-high")
    assert status != 0
    assert "ResourceConflict" in wrong
    cli(f"{cloudwatch} delete-alarms --alarm-names cli-any")
    cli(f"{cloudwatch} delete-alarms --alarm-names cli-high")
    status, _, wrong = cli.run(
        f"{cloudwatch} set-alarm-state --alarm-name cli-high --state-value OK", *reason
    )
    assert status != 0
    assert "(ResourceNotFound)" in wrong
