"""The capacity that a step scaling policy asks for."""

import math
from collections.abc import Callable, Mapping, Sequence

from sagehen.services.autoscaling.policies.facts import Breach, StepAdjustment, StepScaling

__all__ = ["stepped_capacity"]


def _average(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


_AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "Average": _average,
    "Minimum": min,
    "Maximum": max,
}


def stepped_capacity(policy: StepScaling, breach: Breach, capacity: int) -> int | None:
    """Returns the capacity to have; None if no step is for a metric so far from the threshold."""
    metric = _AGGREGATES[policy.metric_aggregation_type](breach.values)
    step = _matching(policy.step_adjustments, metric - breach.threshold, breach.is_above)
    if step is None:
        return None
    adjustment = step.scaling_adjustment
    if policy.adjustment_type == "ExactCapacity":
        return adjustment
    if policy.adjustment_type == "PercentChangeInCapacity":
        adjustment = _percent(adjustment, capacity, policy.min_adjustment_magnitude)
    return max(0, capacity + adjustment)


def _matching(
    steps: Sequence[StepAdjustment], difference: float, is_above: bool
) -> StepAdjustment | None:
    """Above the threshold a step includes its lower bound, below it its upper bound."""
    for step in steps:
        lower = _or(step.metric_interval_lower_bound, -math.inf)
        upper = _or(step.metric_interval_upper_bound, math.inf)
        if (lower <= difference < upper) if is_above else (lower < difference <= upper):
            return step
    return None


def _or(bound: float | None, infinity: float) -> float:
    return infinity if bound is None else bound


def _percent(adjustment: int, capacity: int, least: int) -> int:
    """Rounds toward zero, but changes below one to one, and to `least` if that is more."""
    change = math.trunc(abs(adjustment) * capacity / 100)
    if adjustment and capacity:
        change = max(1, change)
    change = max(change, least) if adjustment else 0
    return change if adjustment > 0 else -change
