"""The parts of Sagehen that `app` hands in: fleets, alarms and events."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from sqlalchemy import Connection

__all__ = [
    "AlarmCall",
    "Alarms",
    "Capacity",
    "PutEvent",
    "ScalableResources",
    "ScalingEvent",
]


class Capacity(NamedTuple):
    """A resource's counts now."""

    desired: int
    current: int
    """what serves"""
    is_settled: bool
    """nothing is under way"""
    not_scalable: str | None
    """why the count cannot be changed now"""
    minimum_allowed: int
    unregistrable: str | None = None
    """why the resource cannot be a scalable target at all"""
    failure: str | None = None
    """why the last change failed"""
    deployment: str = ""
    """changes when other instances take over, as by UpdateEndpoint"""


class ScalableResources(Protocol):
    """The resources that can be scaled."""

    def capacity(self, connection: Connection, resource_id: str, dimension: str) -> Capacity | None:
        """Returns None if there is no such resource."""

    def capacities(
        self, connection: Connection, keys: Iterable[tuple[str, str]]
    ) -> Mapping[tuple[str, str], Capacity]:
        """Returns those of many, by resource id and dimension, without those that are not there."""

    def version(self, connection: Connection) -> object:
        """Returns a value that differs when any resource has been changed."""

    def set_desired(
        self, connection: Connection, resource_id: str, dimension: str, count: int, now: float
    ) -> None:
        """Raises AwsError if the resource's service refuses the count, which then stays."""


class Alarms(Protocol):
    """CloudWatch's alarms, in the caller's transaction."""

    def put(self, connection: Connection, definition: Mapping[str, Any], now: float) -> str:
        """Takes the parameters of PutMetricAlarm; returns the alarm's ARN; raises AwsError."""

    def delete(self, connection: Connection, names: Collection[str], now: float) -> None:
        """Names without an alarm are no error."""


class AlarmCall(Protocol):
    """An alarm's call of a policy."""

    @property
    def action_arn(self) -> str:
        """The policy's ARN, with or without `:createdBy/…`."""

    @property
    def alarm_name(self) -> str: ...

    @property
    def threshold(self) -> float: ...

    @property
    def comparison(self) -> str: ...

    @property
    def values(self) -> tuple[float, ...]: ...


class ScalingEvent(NamedTuple):
    """EventBridge's 'Application Auto Scaling Scaling Activity State Change'."""

    happened_at: float
    detail: dict[str, Any]


PutEvent = Callable[[Connection, ScalingEvent], None]
"""sends an event in the caller's transaction"""
