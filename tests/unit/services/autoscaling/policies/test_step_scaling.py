"""Step scaling: which step, and how it is rounded."""

import pytest

from sagehen.services.autoscaling.policies.facts import Breach, StepAdjustment, StepScaling
from sagehen.services.autoscaling.policies.step_scaling import stepped_capacity


def stepped(capacity, difference, *steps, comparison="GreaterThanOrEqualToThreshold", **policy):
    policy = {"adjustment_type": "ChangeInCapacity"} | policy
    adjustments = tuple(
        StepAdjustment(
            metric_interval_lower_bound=lower,
            metric_interval_upper_bound=upper,
            scaling_adjustment=change,
        )
        for lower, upper, change in steps
    )
    differences = difference if isinstance(difference, tuple) else (difference,)
    breach = Breach(
        alarm_name="a",
        threshold=50,
        comparison=comparison,
        values=tuple(50 + one for one in differences),
        at=0,
    )
    return stepped_capacity(StepScaling(step_adjustments=adjustments, **policy), breach, capacity)


OUT = ((0, 10, 1), (10, 20, 2), (20, None, 3))
IN = ((-10, 0, -1), (None, -10, -2))


@pytest.mark.parametrize(
    ("difference", "expected"), [(0, 11), (9.9, 11), (10, 12), (20, 13), (1000, 13), (-1, None)]
)
def test_above_the_threshold_a_lower_bound_belongs_to_its_step(difference, expected):
    assert stepped(10, difference, *OUT) == expected


@pytest.mark.parametrize(
    ("difference", "expected"), [(0, 9), (-9.9, 9), (-10, 8), (-11, 8), (1, None)]
)
def test_below_the_threshold_an_upper_bound_belongs_to_its_step(difference, expected):
    comparison = "LessThanOrEqualToThreshold"
    assert stepped(10, difference, *IN, comparison=comparison) == expected


@pytest.mark.parametrize(
    ("capacity", "percent", "expected"),
    [
        pytest.param(10, 10, 11, id="AWS's guide"),
        pytest.param(11, 30, 14, id="AWS's guide: 3.3"),
        pytest.param(14, -10, 13, id="AWS's guide: -1.4"),
        pytest.param(13, -30, 10, id="AWS's guide: -3.9"),
        pytest.param(3, 10, 4, id="0.3 is 1"),
        pytest.param(3, -10, 2, id="-0.3 is -1"),
        pytest.param(0, 50, 0, id="half of nothing"),
    ],
)
def test_percentages_are_rounded_as_aws_does(capacity, percent, expected):
    kind = "PercentChangeInCapacity"
    assert stepped(capacity, 5, (0, None, percent), adjustment_type=kind) == expected


def test_a_percentage_changes_by_the_least_magnitude():
    policy = {"adjustment_type": "PercentChangeInCapacity", "min_adjustment_magnitude": 2}
    assert stepped(4, 5, (0, None, 25), **policy) == 6
    assert stepped(4, 5, (0, None, -25), **policy) == 2


def test_an_exact_capacity_is_it():
    assert stepped(10, 5, (0, None, 3), adjustment_type="ExactCapacity") == 3


def test_capacity_is_never_negative():
    assert stepped(1, 5, (0, None, -3)) == 0


@pytest.mark.parametrize(("kind", "expected"), [("Average", 12), ("Minimum", 11), ("Maximum", 13)])
def test_datapoints_are_aggregated_as_the_policy_says(kind, expected):
    assert stepped(10, (0, 15, 30), *OUT, metric_aggregation_type=kind) == expected


def test_an_average_of_values_whose_sum_is_too_large():
    largest = 1.7e308
    assert stepped(1, (largest, largest), (0, None, 2)) == 3
