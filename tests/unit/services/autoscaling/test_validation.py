"""Checks of policies that the model does not make."""

import math

import pytest

from sagehen.services.autoscaling.dimensions import INSTANCES
from sagehen.services.autoscaling.validation import check_policy

PREDEFINED = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
STAT = {"Metric": {"Namespace": "n", "MetricName": "m"}, "Stat": "Sum"}


def tracking(**changes):
    configuration = {"TargetValue": 5.0, "PredefinedMetricSpecification": PREDEFINED} | changes
    configuration = {name: value for name, value in configuration.items() if value is not None}
    params = {"TargetTrackingScalingPolicyConfiguration": configuration}
    return check_policy("TargetTrackingScaling", params, INSTANCES)


def custom(specification):
    return tracking(PredefinedMetricSpecification=None, CustomizedMetricSpecification=specification)


def steps(*bounds, **changes):
    names = ("MetricIntervalLowerBound", "MetricIntervalUpperBound")
    adjustments = [
        {name: value for name, value in zip(names, pair, strict=True) if value is not None}
        | {"ScalingAdjustment": 1}
        for pair in bounds
    ]
    configuration = {"AdjustmentType": "ChangeInCapacity", "StepAdjustments": adjustments}
    configuration = {
        name: value for name, value in (configuration | changes).items() if value is not None
    }
    params = {"StepScalingPolicyConfiguration": configuration}
    return check_policy("StepScaling", params, INSTANCES)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"TargetValue": 0}, "TargetValue must be greater than 0"),
        ({"TargetValue": 2.0**361}, "at most 2^360"),
        ({"TargetValue": float("nan")}, "TargetValue"),
        ({"ScaleOutCooldown": -1}, "ScaleOutCooldown must not be negative"),
        ({"ScaleInCooldown": -1}, "ScaleInCooldown must not be negative"),
        ({"PredefinedMetricSpecification": None}, "Exactly one of"),
        ({"CustomizedMetricSpecification": {}}, "Exactly one of"),
        (
            {"PredefinedMetricSpecification": {**PREDEFINED, "ResourceLabel": "x"}},
            "ResourceLabel is not supported",
        ),
        (
            {
                "PredefinedMetricSpecification": {
                    "PredefinedMetricType": "ECSServiceAverageCPUUtilization"
                }
            },
            "is not for the scalable dimension",
        ),
    ],
)
def test_tracking_that_cannot_work_is_refused(refused, changes, reason):
    assert reason in refused(lambda: tracking(**changes))


@pytest.mark.parametrize(
    ("specification", "reason"),
    [
        ({}, "needs MetricName and Namespace and Statistic"),
        ({"MetricName": "m", "Statistic": "Sum"}, "needs Namespace"),
        ({"Metrics": [], "MetricName": "m"}, "cannot have MetricName"),
        ({"Metrics": []}, "Exactly one of Metrics"),
        ({"Metrics": [{"Id": "a", "MetricStat": STAT}] * 2}, "have to differ"),
        ({"Metrics": [{"Id": "A", "MetricStat": STAT}]}, "lower-case"),
        ({"Metrics": [{"Id": "a"}]}, "needs one of Expression and MetricStat"),
        ({"Metrics": [{"Id": "a", "MetricStat": {"Metric": {}, "Stat": "Sum"}}]}, "Namespace"),
        (
            {"Metrics": [{"Id": "a", "MetricStat": STAT}, {"Id": "b", "Expression": "a"}]},
            "Exactly one of Metrics",
        ),
        (
            {"Metrics": [{"Id": f"a{number}", "Expression": "x" * 2000} for number in range(30)]},
            "over 51200 bytes",
        ),
    ],
)
def test_customized_metrics_that_cannot_work_are_refused(refused, specification, reason):
    assert reason in refused(lambda: custom(specification))


def test_metric_math_is_taken():
    queries = [
        {"Id": "a", "MetricStat": STAT, "ReturnData": False},
        {"Id": "b", "Expression": "a / 2"},
    ]
    assert custom({"Metrics": queries})["CustomizedMetricSpecification"]["Metrics"] == queries


@pytest.mark.parametrize(
    "bounds",
    [
        [(0, None)],
        [(None, 0)],
        [(0, 10), (10, None)],
        [(None, -10), (-10, 0), (0, 10), (10, None)],
        [(10, None), (0, 10)],
        [(-10, 0), (None, -10)],
    ],
)
def test_intervals_that_join_are_taken(bounds):
    steps(*bounds)


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ([], "1 to 20 StepAdjustments"),
        ([(0, None)] * 21, "1 to 20 StepAdjustments"),
        ([(None, None)], "a lower or an upper bound"),
        ([(5, 5)], "is not greater than"),
        ([(math.nan, None)], "The bound nan of a step adjustment is not a finite number"),
        ([(0, math.inf)], "Leave a bound out for infinity"),
        ([(0, 10), (20, None)], "a gap or an overlap"),
        ([(0, 10), (5, None)], "a gap or an overlap"),
        ([(0, None), (5, None)], "one no upper bound"),
        ([(None, 0), (None, 5)], "one no upper bound"),
        ([(-10, 0)], "one step has to have no lower bound"),
        ([(0, 10)], "one step has to have no upper bound"),
    ],
)
def test_intervals_that_do_not_join_are_refused(refused, bounds, reason):
    assert reason in refused(lambda: steps(*bounds))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"AdjustmentType": None}, "needs an AdjustmentType"),
        ({"Cooldown": -1}, "Cooldown must not be negative"),
        ({"MinAdjustmentMagnitude": 2}, "does not go with the AdjustmentType ChangeInCapacity"),
        (
            {"AdjustmentType": "PercentChangeInCapacity", "MinAdjustmentMagnitude": 0},
            "at least 1",
        ),
        (
            {
                "AdjustmentType": "ExactCapacity",
                "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": -1}],
            },
            "must not be negative",
        ),
    ],
)
def test_steps_that_cannot_work_are_refused(refused, changes, reason):
    assert reason in refused(lambda: steps((0, None), **changes))


def test_a_policy_has_the_configuration_of_its_type(refused):
    both = {"TargetTrackingScalingPolicyConfiguration": {}, "StepScalingPolicyConfiguration": {}}
    assert "has no StepScaling" in refused(
        lambda: check_policy("TargetTrackingScaling", both, INSTANCES)
    )
    assert "needs a StepScaling" in refused(lambda: check_policy("StepScaling", {}, INSTANCES))
