"""Records of scalable targets, scaling policies, scheduled actions and scaling activities."""

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from sagehen.services.autoscaling.policies.facts import Breach, LastScaling

__all__ = [
    "NAMESPACE",
    "ActivityRecord",
    "ActivityStatus",
    "AlarmName",
    "PolicyRecord",
    "ScalableTargetRecord",
    "ScheduledActionRecord",
    "Suspensions",
    "TargetKey",
]

NAMESPACE = "sagemaker"
"""the only service namespace whose resources are here"""


class TargetKey(NamedTuple):
    """The identity of a scalable target."""

    resource_id: str
    """`endpoint/E/variant/V`"""
    dimension: str
    namespace: str = NAMESPACE


class Suspensions(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A target's SuspendedState."""

    dynamic_scaling_in_suspended: bool = False
    dynamic_scaling_out_suspended: bool = False
    scheduled_scaling_suspended: bool = False


class ScalableTargetRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A scalable target."""

    target_id: str
    """the end of its ARN, never reused"""
    resource_id: str
    dimension: str
    arn: str
    minimum: int
    maximum: int
    suspended: Suspensions = Suspensions()
    created_at: float
    """seconds since the epoch, like every `_at`"""
    adjusted_for: str | None = None
    """The deployment whose count was last brought between the bounds: a new one begins with the
    count of its configuration."""
    last_out: LastScaling | None = None
    last_in: LastScaling | None = None
    last_decision: str | None = None
    """why the last call of a policy did what it did"""
    decided_at: float | None = None

    @property
    def key(self) -> TargetKey:
        return TargetKey(self.resource_id, self.dimension)


class AlarmName(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """An alarm of a tracking policy, as the operations show it."""

    alarm_name: str
    alarm_arn: str = msgspec.field(name="AlarmARN")


class PolicyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A scaling policy."""

    policy_id: str
    """UUID, in its ARN"""
    target_id: str
    name: str
    arn: str
    policy_type: str
    """`TargetTrackingScaling` or `StepScaling`"""
    configuration: dict[str, Any]
    """as given"""
    alarms: tuple[AlarmName, ...] = ()
    created_at: float
    breach: Breach | None = None
    """its alarm's last call"""


class ScheduledActionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduled action."""

    action_id: str
    """UUID, in its ARN"""
    target_id: str
    name: str
    arn: str
    schedule: str
    timezone: str | None = None
    """canonical IANA name; None: UTC"""
    starts_at: float | None = None
    ends_at: float | None = None
    minimum: int | None = None
    maximum: int | None = None
    created_at: float
    next_at: float | None = None
    """None: it will not run again"""
    ended_at: float | None = None
    """when it ran for the last time"""


class ActivityStatus(StrEnum):
    """ScalingActivityStatusCode. A change of the desired count and its activity are written
    together, so that none is ever `Pending`."""

    IN_PROGRESS = "InProgress"
    SUCCESSFUL = "Successful"
    OVERRIDDEN = "Overridden"
    """Something else has changed the desired count since."""
    UNFULFILLED = "Unfulfilled"
    """The instances did not come up, or the resource is gone."""
    FAILED = "Failed"


class ActivityRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A scaling activity, or a record of why nothing was scaled."""

    activity_id: str
    """UUID"""
    resource_id: str
    dimension: str
    description: str
    cause: str
    started_at: float
    ended_at: float | None = None
    status: ActivityStatus
    message: str | None = None
    not_scaled: dict[str, Any] | None = None
    """one of NotScaledReasons"""
    desired: int | None = None
    """the count to reach"""
    capacity: int | None = None
    """the count before"""
    before: int | None = None
    """see `LastScaling.before`"""

    @property
    def key(self) -> TargetKey:
        return TargetKey(self.resource_id, self.dimension)
