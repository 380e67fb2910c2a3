"""The facts from which scaling decisions are made, and the decisions; no database, no clock."""

from enum import StrEnum
from typing import Any

import msgspec

__all__ = [
    "Breach",
    "Decision",
    "LastScaling",
    "NotScaled",
    "NotScaledCode",
    "PolicyConfiguration",
    "PolicyFacts",
    "ScalingFacts",
    "StepAdjustment",
    "StepScaling",
    "TargetTracking",
    "read_configuration",
]

DEFAULT_COOLDOWN_SECONDS = 300
"""of variants, for both kinds of policy"""


class TargetTracking(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The part of a TargetTrackingScalingPolicyConfiguration that decisions need."""

    target_value: float
    scale_out_cooldown: int = DEFAULT_COOLDOWN_SECONDS
    scale_in_cooldown: int = DEFAULT_COOLDOWN_SECONDS
    disable_scale_in: bool = False


class StepAdjustment(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A step: an adjustment, and the distances from the alarm's threshold for which it is."""

    scaling_adjustment: int
    metric_interval_lower_bound: float | None = None
    metric_interval_upper_bound: float | None = None


class StepScaling(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A StepScalingPolicyConfiguration."""

    adjustment_type: str
    step_adjustments: tuple[StepAdjustment, ...]
    min_adjustment_magnitude: int = 0
    """for PercentChangeInCapacity"""
    cooldown: int = DEFAULT_COOLDOWN_SECONDS
    metric_aggregation_type: str = "Average"

    @property
    def scale_out_cooldown(self) -> int:
        return self.cooldown

    @property
    def scale_in_cooldown(self) -> int:
        return self.cooldown


PolicyConfiguration = TargetTracking | StepScaling


def read_configuration(policy_type: str, configuration: dict[str, Any]) -> PolicyConfiguration:
    """Reads the configuration of a checked policy."""
    if policy_type == "TargetTrackingScaling":
        return msgspec.convert(configuration, TargetTracking)
    return msgspec.convert(configuration, StepScaling)


class Breach(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm's call of a policy."""

    alarm_name: str
    threshold: float
    comparison: str
    """the alarm's ComparisonOperator"""
    values: tuple[float, ...]
    """the datapoints that were evaluated, newest first; never empty"""
    at: float
    """seconds since the epoch"""

    @property
    def is_above(self) -> bool:
        """The metric is too high, not too low."""
        return self.comparison.startswith("GreaterThan")


class PolicyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A policy, and its alarm's last call if that still holds."""

    name: str
    configuration: PolicyConfiguration
    breach: Breach | None = None


class LastScaling(msgspec.Struct, frozen=True, kw_only=True):
    """The last completed change in one direction."""

    ended_at: float
    before: int
    """the capacity before it, or before the first change of an unfinished cooldown"""


class ScalingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a decision about one scalable target depends on."""

    now: float
    capacity: int
    """the desired count"""
    minimum: int
    maximum: int
    acting: str
    """the policy that an alarm has called now"""
    policies: tuple[PolicyFacts, ...]
    """all of the target, the acting one too"""
    not_scalable: str | None = None
    """why the resource takes no change now"""
    scale_out_suspended: bool = False
    scale_in_suspended: bool = False
    last_out: LastScaling | None = None
    last_in: LastScaling | None = None


class NotScaledCode(StrEnum):
    """The codes of NotScaledReasons."""

    FLAPPING = "AutoScalingAnticipatedFlapping"
    """A removal would push the metric over its target again."""
    UNSCALABLE = "TargetServicePutResourceAsUnscalable"
    AT_MAXIMUM = "AlreadyAtMaxCapacity"
    AT_MINIMUM = "AlreadyAtMinCapacity"
    AT_DESIRED = "AlreadyAtDesiredCapacity"


class NotScaled(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing was done, as DescribeScalingActivities shows it."""

    code: NotScaledCode
    maximum: int | None = None
    minimum: int | None = None
    current: int | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one call of a policy."""

    policy: str
    """the policy whose capacity won"""
    reason: str
    """a sentence for people"""
    desired: int | None = None
    """the new desired count; None changes nothing"""
    before: int | None = None
    """see `LastScaling.before`"""
    not_scaled: NotScaled | None = None
    """None, too, where SageMaker records nothing: in a cooldown, while suspended"""
