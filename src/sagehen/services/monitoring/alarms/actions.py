"""The actions of alarms on other services; `app` hands them in, as services do not import one
another."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection

__all__ = [
    "AlarmActions",
    "AlarmEvent",
    "Notification",
    "PolicyInvoker",
    "PolicyTrigger",
    "Publish",
    "PutEvent",
    "is_scaling_policy",
    "is_topic",
]


class PolicyTrigger(NamedTuple):
    """An alarm's call of a scaling policy."""

    action_arn: str
    """as in the alarm's actions: the policy's ARN, with or without `:createdBy/…`"""
    alarm_name: str
    threshold: float
    comparison: str
    """such as `GreaterThanThreshold`"""
    values: tuple[float, ...]
    """real datapoints of the evaluation, newest first; never empty"""


PolicyInvoker = Callable[[Connection, PolicyTrigger, datetime], str | None]
"""Runs in the transaction that writes the alarm's state; returns why it failed, or None."""


class Notification(NamedTuple):
    """A message to an SNS topic."""

    topic_arn: str
    subject: str
    message: str
    published_at: float


class AlarmEvent(NamedTuple):
    """An event of EventBridge, of the source `aws.cloudwatch`."""

    detail_type: str
    alarm_arn: str
    happened_at: float
    detail: dict[str, Any]


Publish = Callable[[Connection, Notification], bool]
"""Publishes in the caller's transaction; returns False if there is no such topic."""

PutEvent = Callable[[Connection, AlarmEvent], None]


@dataclass(frozen=True, kw_only=True)
class AlarmActions:
    """Each runs in the transaction that writes the alarm: a kill loses and repeats no notice."""

    publish: Publish
    put_event: PutEvent
    invoke_policy: PolicyInvoker


def is_topic(arn: str) -> bool:
    return _service(arn) == "sns"


def is_scaling_policy(arn: str) -> bool:
    return _service(arn) == "autoscaling" and ":scalingPolicy:" in arn


def _service(arn: str) -> str:
    parts = arn.split(":", 5)
    return parts[2] if len(parts) == 6 and parts[0] == "arn" else ""
