"""Scaling policies and the alarms of those that track a metric."""

import pytest

from sagehen.services.autoscaling.dimensions import PROVISIONED_CONCURRENCY
from sagehen.wire.errors import AwsError

RESOURCE = "endpoint/e/variant/v"
POLICY_ARN = "arn:aws:autoscaling:us-east-1:000000000000:scalingPolicy:"


@pytest.fixture
def scaling(scaling):
    scaling.register()
    return scaling


def described(scaling, **more):
    return scaling.DescribeScalingPolicies(**more)["ScalingPolicies"]


def test_a_tracking_policy_has_two_alarms(scaling):
    answer = scaling.track("my-policy", 70)
    arn = answer["PolicyARN"]
    assert arn.startswith(POLICY_ARN)
    assert arn.endswith(f":resource/sagemaker/{RESOURCE}:policyName/my-policy")
    high, low = answer["Alarms"]
    for alarm, kind in ((high, "AlarmHigh"), (low, "AlarmLow")):
        assert alarm["AlarmName"].startswith(f"TargetTracking-{RESOURCE}-{kind}-")
        assert alarm["AlarmARN"] == (
            f"arn:aws:cloudwatch:us-east-1:000000000000:alarm:{alarm['AlarmName']}"
        )
    (action,) = scaling.alarms.definitions[high["AlarmName"]]["AlarmActions"]
    assert action.startswith(f"{arn}:createdBy/")
    (policy,) = described(scaling)
    assert policy["CreationTime"].timestamp() == scaling.clock.now()
    assert policy["Alarms"] == answer["Alarms"]
    assert policy["PolicyType"] == "TargetTrackingScaling"
    assert policy["TargetTrackingScalingPolicyConfiguration"] == {
        "TargetValue": 70,
        "PredefinedMetricSpecification": {
            "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
        },
    }


def test_a_step_policy_has_none(scaling):
    answer = scaling.step()
    assert (answer["Alarms"], scaling.alarms.definitions) == ([], {})
    (policy,) = described(scaling)
    assert policy["StepScalingPolicyConfiguration"]["AdjustmentType"] == "ChangeInCapacity"


def test_a_policy_is_replaced_and_keeps_its_arn_and_while_it_tracks_the_same_its_alarms(scaling):
    first = scaling.track(target=70)
    again = scaling.track(target=80, ScaleInCooldown=60)
    assert again == first
    assert {one["Threshold"] for one in scaling.alarms.definitions.values()} == {80, 72}
    only_high = scaling.track(target=80, DisableScaleIn=True)
    assert only_high["Alarms"] == first["Alarms"][:1]
    assert list(scaling.alarms.definitions) == [first["Alarms"][0]["AlarmName"]]
    metric = {"MetricName": "m", "Namespace": "n", "Statistic": "Average"}
    other = scaling.PutScalingPolicy(
        PolicyName="p",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": 5.0,
            "CustomizedMetricSpecification": metric,
        },
    )
    assert other["PolicyARN"] == first["PolicyARN"]
    names = {alarm["AlarmName"] for alarm in other["Alarms"]}
    assert set(scaling.alarms.definitions) == names
    assert not names & {alarm["AlarmName"] for alarm in first["Alarms"]}
    assert len(described(scaling)) == 1


def test_a_policy_is_deleted_with_its_alarms(scaling, refused):
    scaling.track()
    assert scaling.DeleteScalingPolicy(PolicyName="p") == {}
    assert (described(scaling), scaling.alarms.definitions) == ([], {})
    message = refused(
        lambda: scaling.DeleteScalingPolicy(PolicyName="p"), "ObjectNotFoundException"
    )
    assert message == (
        "No scaling policy found for service namespace: sagemaker, resource ID: "
        "endpoint/e/variant/v, scalable dimension: sagemaker:variant:DesiredInstanceCount, policy "
        "name: p"
    )


def test_policies_are_listed_ten_a_page(scaling, refused):
    for number in range(11):
        scaling.step(f"p{number:02}")
    page = scaling.DescribeScalingPolicies()
    assert len(page["ScalingPolicies"]) == 10
    rest = scaling.DescribeScalingPolicies(NextToken=page["NextToken"])
    assert [policy["PolicyName"] for policy in rest["ScalingPolicies"]] == ["p10"]
    assert len(described(scaling, PolicyNames=["p03", "none"])) == 1
    assert described(scaling, ResourceId="endpoint/no/variant/v") == []
    assert len(described(scaling, ResourceId=None, ScalableDimension=None)) == 10
    refused(lambda: scaling.DescribeScalingPolicies(MaxResults=11))


def test_without_a_target_there_is_no_policy(scaling, refused):
    elsewhere = {"ResourceId": "endpoint/no/variant/v"}
    configuration = {
        "AdjustmentType": "ChangeInCapacity",
        "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
    }
    message = refused(
        lambda: scaling.PutScalingPolicy(
            PolicyName="p",
            PolicyType="StepScaling",
            StepScalingPolicyConfiguration=configuration,
            **elsewhere,
        ),
        "ObjectNotFoundException",
    )
    assert message == (
        "No scalable target registered for service namespace: sagemaker, resource ID: "
        "endpoint/no/variant/v, scalable dimension: sagemaker:variant:DesiredInstanceCount"
    )


def test_two_policies_cannot_track_one_metric(scaling, refused):
    scaling.track("a")
    assert "Policy a tracks this metric already" in refused(lambda: scaling.track("b", 10))


def test_there_are_so_many_policies(scaling, refused, monkeypatch):
    monkeypatch.setattr("sagehen.services.autoscaling.scaling_policies.MAX_POLICIES", 1)
    scaling.step("a")
    scaling.step("a", 2)
    refused(lambda: scaling.step("b"), "LimitExceededException")


def test_the_type_of_a_policy_cannot_change(scaling, refused):
    scaling.step("p")
    assert "cannot be changed" in refused(lambda: scaling.track("p"))
    message = refused(lambda: scaling.PutScalingPolicy(PolicyName="new"))
    assert message == "PolicyType is required to create a scaling policy."


def test_predictive_scaling_is_refused_by_name(scaling, refused):
    message = refused(
        lambda: scaling.PutScalingPolicy(PolicyName="p", PolicyType="PredictiveScaling")
    )
    assert message.startswith("PredictiveScaling is not supported for the service namespace")
    message = refused(lambda: scaling.GetPredictiveScalingForecast(PolicyName="p"))
    assert message.startswith("GetPredictiveScalingForecast is not supported")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ValidationError", "ValidationException"),
        ("LimitExceeded", "LimitExceededException"),
    ],
)
def test_what_cloudwatch_refuses_is_refused_with_its_reason(scaling, refused, code, expected):
    scaling.alarms.refusal = AwsError(code, "Not so.", 400)
    assert refused(scaling.track, expected) == "Not so."
    assert described(scaling) == []


def test_a_predefined_metric_fits_its_dimension(scaling, refused):
    metric = {"PredefinedMetricType": "SageMakerVariantProvisionedConcurrencyUtilization"}
    message = refused(lambda: scaling.track(PredefinedMetricSpecification=metric))
    assert message.startswith("The predefined metric type SageMakerVariantProvisionedConcurrency")
    assert "SageMakerVariantConcurrentRequestsPerModelHighResolution" in message
    concurrency = {"ScalableDimension": PROVISIONED_CONCURRENCY}
    scaling.register(**concurrency)
    configuration = {"TargetValue": 0.5, "PredefinedMetricSpecification": metric}
    answer = scaling.PutScalingPolicy(
        PolicyName="p",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration=configuration,
        **concurrency,
    )
    assert len(answer["Alarms"]) == 2
