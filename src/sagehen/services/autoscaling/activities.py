"""Scaling activities: their texts, and DescribeScalingActivities."""

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.frame.context import RequestContext
from sagehen.frame.named_records import as_time
from sagehen.frame.paging import read_token, write_token
from sagehen.services.autoscaling import store
from sagehen.services.autoscaling.dimensions import DIMENSIONS
from sagehen.services.autoscaling.errors import invalid_token
from sagehen.services.autoscaling.policies.facts import NotScaled
from sagehen.services.autoscaling.records import (
    NAMESPACE,
    ActivityRecord,
    ActivityStatus,
    TargetKey,
)
from sagehen.services.autoscaling.validation import optional_key, page_size
from sagehen.wire.errors import AwsError

__all__ = [
    "HISTORY_SECONDS",
    "bounds_activity",
    "cause_of_alarm",
    "change_activity",
    "describe_scaling_activities",
    "failed",
    "failed_message",
    "is_same_failure",
    "record_not_scaled",
    "succeeded",
]

HISTORY_SECONDS = 42 * 86_400.0
"""six weeks"""
_REQUEST_ID = "; Request ID: "
_COMPARED = 20
"""activities that are looked through for an equal one"""


def cause_of_alarm(alarm: str, policy: str) -> str:
    return f"monitor alarm {alarm} in state ALARM triggered policy {policy}"


def change_activity(
    key: TargetKey, cause: str, now: float, *, desired: int, capacity: int, before: int | None
) -> ActivityRecord:
    """Returns the activity of a new desired count, in progress."""
    return ActivityRecord(
        activity_id=str(uuid.uuid4()),
        resource_id=key.resource_id,
        dimension=key.dimension,
        description=f"Setting desired {_count(key)} to {desired}.",
        cause=cause,
        started_at=now,
        status=ActivityStatus.IN_PROGRESS,
        desired=desired,
        capacity=capacity,
        before=before,
    )


def succeeded(activity: ActivityRecord, now: float) -> ActivityRecord:
    count = _count(activity.key)
    return msgspec.structs.replace(
        activity,
        status=ActivityStatus.SUCCESSFUL,
        ended_at=now,
        message=f"Successfully set desired {count} to {activity.desired}. Change successfully "
        f"fulfilled by {NAMESPACE}.",
    )


def failed(
    activity: ActivityRecord,
    reason: str,
    now: float,
    status: ActivityStatus = ActivityStatus.FAILED,
) -> ActivityRecord:
    count = _count(activity.key)
    return msgspec.structs.replace(
        activity,
        status=status,
        ended_at=now,
        message=f"Failed to set desired {count} to {activity.desired}. Reason: {reason}",
    )


def failed_message(error: AwsError) -> str:
    """Returns a refusal of SageMaker as Application Auto Scaling tells it."""
    return (
        f"{error.message} (Service: AmazonSageMaker; Status Code: {error.status or 400}; "
        f"Error Code: {error.code}{_REQUEST_ID}{uuid.uuid4()})."
    )


def is_same_failure(one: ActivityRecord, other: ActivityRecord) -> bool:
    """Tells whether two activities failed in the same way; each request has its own id."""

    def failure(activity: ActivityRecord) -> tuple[object, ...]:
        reason = (activity.message or "").partition(_REQUEST_ID)[0]
        return activity.status, activity.cause, activity.description, reason

    return one.status is ActivityStatus.FAILED and failure(one) == failure(other)


def bounds_activity(
    key: TargetKey, action: str, minimum: int | None, maximum: int | None, now: float
) -> ActivityRecord:
    """Returns the activity of a scheduled action that has set bounds; it never gets an end."""
    parts = []
    if minimum is not None:
        parts.append(f"min capacity to {minimum}")
    if maximum is not None:
        parts.append(f"max capacity to {maximum}")
    bounds = " and ".join(parts)
    return ActivityRecord(
        activity_id=str(uuid.uuid4()),
        resource_id=key.resource_id,
        dimension=key.dimension,
        description=f"Setting {bounds}",
        cause=f"scheduled action name {action} was triggered",
        started_at=now,
        status=ActivityStatus.SUCCESSFUL,
        message=f"Successfully set {bounds}",
    )


def record_not_scaled(
    connection: Connection, key: TargetKey, cause: str, reason: NotScaled, now: float
) -> None:
    """Writes why nothing was scaled, unless the same was written since the last change."""
    described = _described(reason)
    for _, earlier in store.activities(
        connection, (key.resource_id, key.dimension), True, None, _COMPARED
    ):
        if earlier.not_scaled is None:
            break
        if earlier.cause == cause:
            if earlier.not_scaled == described:
                return
            break
    activity = ActivityRecord(
        activity_id=str(uuid.uuid4()),
        resource_id=key.resource_id,
        dimension=key.dimension,
        description="Attempting to scale due to alarm triggered",
        cause=cause,
        started_at=now,
        status=ActivityStatus.FAILED,
        not_scaled=described,
    )
    store.add_activity(connection, activity)


def describe_scaling_activities(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    limit = page_size(params, 50)
    key = optional_key(params)
    before = _read_number(params.get("NextToken"))
    with_not_scaled = params.get("IncludeNotScaledActivities", False)
    with call.database.read() as connection:
        found = store.activities(connection, key, with_not_scaled, before, limit + 1)
    answer: dict[str, Any] = {
        "ScalingActivities": [_summary(record) for _, record in found[:limit]]
    }
    if len(found) > limit:
        answer["NextToken"] = write_token(str(found[limit - 1][0]))
    return answer


def _read_number(token: str | None) -> int | None:
    if token is None:
        return None
    text = read_token(token, invalid_token)
    if not text.isdecimal() or len(text) > 18:
        raise invalid_token()
    return int(text)


def _summary(record: ActivityRecord) -> dict[str, Any]:
    summary: dict[str, Any] = {
        "ActivityId": record.activity_id,
        "ServiceNamespace": NAMESPACE,
        "ResourceId": record.resource_id,
        "ScalableDimension": record.dimension,
        "Description": record.description,
        "Cause": record.cause,
        "StartTime": as_time(record.started_at),
        "StatusCode": record.status.value,
    }
    if record.message is not None:
        summary["StatusMessage"] = record.message
    if record.ended_at is not None:
        summary["EndTime"] = as_time(record.ended_at)
    if record.not_scaled is not None:
        summary["NotScaledReasons"] = [record.not_scaled]
    return summary


def _described(reason: NotScaled) -> dict[str, Any]:
    members: Mapping[str, int | str | None] = {
        "Code": reason.code.value,
        "MaxCapacity": reason.maximum,
        "MinCapacity": reason.minimum,
        "CurrentCapacity": reason.current,
    }
    return {name: value for name, value in members.items() if value is not None}


def _count(key: TargetKey) -> str:
    return DIMENSIONS[key.dimension].count
