"""The definitions of a tracking policy's alarms."""

import pytest

from sagehen.services.autoscaling.dimensions import INSTANCES
from sagehen.services.autoscaling.records import PolicyRecord, TargetKey
from sagehen.services.autoscaling.tracking_alarms import alarm_definitions

KEY = TargetKey("endpoint/e/variant/v", INSTANCES)
UNIQUE = {"AlarmHigh": "1", "AlarmLow": "2", "action": "3"}
DIMENSIONS = [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "v"}]


def definitions(scale_in_seconds=900, target=70, **configuration):
    policy = PolicyRecord(
        policy_id="id",
        target_id="t",
        name="p",
        arn="arn:p",
        policy_type="TargetTrackingScaling",
        configuration={"TargetValue": target, **configuration},
        created_at=0,
    )
    return alarm_definitions(KEY, policy, UNIQUE, scale_in_seconds)


def predefined(kind):
    return {"PredefinedMetricSpecification": {"PredefinedMetricType": kind}}


def test_the_alarms_are_those_that_aws_makes():
    high, low = definitions(**predefined("SageMakerVariantInvocationsPerInstance"))
    shared = {
        "AlarmDescription": "DO NOT EDIT OR DELETE. For TargetTrackingScaling policy "
        "arn:p:createdBy/3.",
        "ActionsEnabled": True,
        "AlarmActions": ["arn:p:createdBy/3"],
        "TreatMissingData": "missing",
        "Namespace": "AWS/SageMaker",
        "MetricName": "InvocationsPerInstance",
        "Dimensions": DIMENSIONS,
        "Statistic": "Sum",
        "Period": 60,
    }
    assert high == shared | {
        "AlarmName": "TargetTracking-endpoint/e/variant/v-AlarmHigh-1",
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": 70.0,
        "EvaluationPeriods": 3,
    }
    assert low == shared | {
        "AlarmName": "TargetTracking-endpoint/e/variant/v-AlarmLow-2",
        "ComparisonOperator": "LessThanThreshold",
        "Threshold": 63.0,
        "EvaluationPeriods": 15,
    }


@pytest.mark.parametrize(("target", "low"), [(80, 72), (0.5, 0.45), (63, 56.7), (1e-9, 9e-10)])
def test_the_lower_threshold_is_nine_tenths(target, low):
    kind = predefined("SageMakerVariantInvocationsPerInstance")
    assert definitions(target=target, **kind)[1]["Threshold"] == low


def test_a_high_resolution_metric_is_looked_at_every_ten_seconds():
    kind = predefined("SageMakerVariantConcurrentRequestsPerModelHighResolution")
    high, low = definitions(**kind)
    assert (high["Period"], high["EvaluationPeriods"], high["Statistic"]) == (10, 3, "Maximum")
    assert (low["Period"], low["EvaluationPeriods"]) == (10, 90)


def test_the_setting_shortens_the_wait_before_scaling_in():
    kind = predefined("SageMakerVariantInvocationsPerInstance")
    assert definitions(120, **kind)[1]["EvaluationPeriods"] == 2
    assert definitions(60, **kind)[1]["EvaluationPeriods"] == 1


def test_without_scale_in_there_is_no_lower_alarm():
    kind = predefined("SageMakerVariantInvocationsPerInstance")
    (high,) = definitions(DisableScaleIn=True, **kind)
    assert "AlarmHigh" in high["AlarmName"]


def test_a_customized_metric_is_taken_as_it_is():
    metric = {
        "MetricName": "ApproximateBacklogSizePerInstance",
        "Namespace": "AWS/SageMaker",
        "Dimensions": [{"Name": "EndpointName", "Value": "e"}],
        "Statistic": "Average",
        "Unit": "Count",
    }
    high, _ = definitions(CustomizedMetricSpecification=metric)
    assert metric.items() <= high.items()
    assert high["Period"] == 60


def test_metric_math_gets_a_period():
    stat = {"Metric": {"Namespace": "n", "MetricName": "m"}, "Stat": "Sum"}
    queries = [
        {"Id": "m1", "MetricStat": stat, "ReturnData": False},
        {"Id": "e1", "Expression": "m1 / 2", "Label": "half"},
    ]
    high, _ = definitions(CustomizedMetricSpecification={"Metrics": queries})
    assert high["Metrics"] == [
        {"Id": "m1", "MetricStat": {**stat, "Period": 60}, "ReturnData": False},
        queries[1],
    ]
    assert not {"Period", "Statistic", "MetricName", "Namespace", "Dimensions"} & high.keys()
