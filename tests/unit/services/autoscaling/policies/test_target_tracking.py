"""The capacity of target tracking, held against what AWS and its users have published."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagehen.services.autoscaling.policies.facts import Breach, TargetTracking
from sagehen.services.autoscaling.policies.target_tracking import tracked_capacity

HIGH, LOW = "GreaterThanThreshold", "LessThanThreshold"


def tracked(capacity, values, target, bounds=(1, 100), comparison=HIGH, **policy):
    breach = Breach(
        alarm_name="a", threshold=target, comparison=comparison, values=tuple(values), at=0
    )
    return tracked_capacity(
        TargetTracking(target_value=target, **policy), breach, capacity, *bounds
    )


@pytest.mark.parametrize(
    ("capacity", "value", "target", "maximum", "expected"),
    [
        pytest.param(1, 130, 5, 4, 4, id="26 times the target goes to the maximum at once"),
        pytest.param(1, 48 * 5, 5, 100, 48, id="a backlog of 240 at 5 for each instance"),
        pytest.param(10, 51, 50, 100, 11, id="a fraction is rounded up"),
        pytest.param(3, 50.0000001, 50, 100, 4, id="at least one more"),
        pytest.param(0, 12, 5, 100, 1, id="nothing to multiply"),
        pytest.param(2, 1e300, 1e-300, 7, 7, id="an infinite need is the maximum"),
        pytest.param(0, 1e300, 1e-300, 7, 1, id="nothing to multiply with infinity"),
    ],
)
def test_a_metric_above_its_target_adds_in_proportion(capacity, value, target, maximum, expected):
    assert tracked(capacity, [value, 1], target, (1, maximum)) == expected


@pytest.mark.parametrize(
    ("capacity", "values", "expected"),
    [
        pytest.param(10, [30, 30], 6, id="rounded up"),
        pytest.param(10, [0, 44], 9, id="the highest of the datapoints counts"),
        pytest.param(2, [44], 2, id="a removal would pass the target"),
        pytest.param(10, [0, 0], 1, id="without traffic the minimum"),
        pytest.param(10, [1], 1, id="one is enough"),
    ],
)
def test_a_low_metric_removes_what_keeps_it_under_its_target(capacity, values, expected):
    assert tracked(capacity, values, 50, comparison=LOW) == expected


def test_without_scale_in_a_low_metric_keeps_the_capacity():
    assert tracked(10, [0], 50, comparison=LOW, disable_scale_in=True) == 10


@given(
    capacity=st.integers(1, 500),
    value=st.floats(0.001, 1e6),
    target=st.floats(0.001, 1e6),
)
def test_a_removal_never_pushes_the_metric_over_its_target(capacity, value, target):
    after = tracked(capacity, [value], target, (1, 500), LOW)
    assert 0 < after <= capacity
    if after < capacity:
        assert capacity * value / after <= target * (1 + 1e-6)
