"""The capacity that a target tracking policy asks for.

AWS does not publish its formula. This one reproduces the published examples: in proportion to the
metric when adding, rounded up; when removing, never so much that the metric would pass its target.
The newest datapoint counts when adding, the highest of those evaluated when removing: one minute
without requests must not take a busy fleet away.
"""

import math

from sagehen.services.autoscaling.policies.facts import Breach, TargetTracking

__all__ = ["tracked_capacity"]

_ROUNDING = 1e-9
"""share of a count that is an error of floating point, not a need for one more"""


def tracked_capacity(
    policy: TargetTracking, breach: Breach, capacity: int, minimum: int, maximum: int
) -> int:
    """Returns the capacity to have, which may lie outside of the bounds by rounding only.

    At a capacity of 0 a metric above its target asks for 1: there is nothing to multiply.
    """
    if breach.is_above:
        return max(capacity + 1, _needed(policy, breach.values[0], capacity, maximum))
    if policy.disable_scale_in:
        return capacity
    highest = max(breach.values)
    if highest <= 0:
        return min(minimum, capacity)
    return min(_needed(policy, highest, capacity, maximum), capacity)


def _needed(policy: TargetTracking, value: float, capacity: int, maximum: int) -> int:
    # Not 0 times infinity, which is no number.
    ratio = capacity * (value / policy.target_value) if capacity else 0.0
    if ratio >= maximum:
        return maximum
    return max(0, math.ceil(ratio * (1 - _ROUNDING)))
