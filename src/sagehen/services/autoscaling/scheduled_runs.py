"""One run of a scheduled action: its bounds become the target's, and the count follows."""

import logging

import msgspec
from sqlalchemy import Connection

from sagehen.base.errors import Invalid
from sagehen.services.autoscaling import store
from sagehen.services.autoscaling.activities import bounds_activity, change_activity
from sagehen.services.autoscaling.autoscaler import Autoscaler
from sagehen.services.autoscaling.records import (
    ActivityStatus,
    ScalableTargetRecord,
    ScheduledActionRecord,
)
from sagehen.services.autoscaling.resources import Capacity
from sagehen.services.autoscaling.schedules.schedule import next_run, parse_schedule

__all__ = ["run_action"]

log = logging.getLogger(__name__)


def run_action(
    connection: Connection,
    autoscaler: Autoscaler,
    target: ScalableTargetRecord,
    action: ScheduledActionRecord,
    now: float,
) -> None:
    """Runs a due action and sets when it runs next. `target` is locked."""
    suspended = target.suspended.scheduled_scaling_suspended
    if not suspended:
        _apply(connection, autoscaler, target, action, now)
    after = _after_run(action, now)
    store.put_action(connection, after)
    extra = {
        "action": "scheduled_action",
        "resource": target.resource_id,
        "name_of_action": action.name,
        "minimum": action.minimum,
        "maximum": action.maximum,
        "suspended": suspended,
        "next_at": after.next_at,
    }
    log.info("A scheduled action was run.", extra=extra)


def _after_run(action: ScheduledActionRecord, now: float) -> ScheduledActionRecord:
    assert action.next_at is not None
    try:
        schedule = parse_schedule(action.schedule, action.timezone)
        next_at = next_run(schedule, now, action.next_at, action.starts_at, action.ends_at)
    except Invalid:
        # The schedule was checked when it was put; a time zone may have gone since.
        log.exception("A schedule cannot be read.", extra={"action": "scheduled_action"})
        next_at = None
    ended_at = now if next_at is None else None
    return msgspec.structs.replace(action, next_at=next_at, ended_at=ended_at)


def _apply(
    connection: Connection,
    autoscaler: Autoscaler,
    target: ScalableTargetRecord,
    action: ScheduledActionRecord,
    now: float,
) -> None:
    activity = bounds_activity(target.key, action.name, action.minimum, action.maximum, now)
    minimum = target.minimum if action.minimum is None else action.minimum
    maximum = target.maximum if action.maximum is None else action.maximum
    capacity = autoscaler.capacity(connection, target.key)
    refusal = _refusal(minimum, maximum, capacity)
    if capacity is None or refusal is not None:
        bounds = activity.description.removeprefix("Setting ")
        message = f"Failed to set {bounds}. Reason: {refusal}"
        activity = msgspec.structs.replace(activity, status=ActivityStatus.FAILED, message=message)
        store.add_activity(connection, activity)
        return
    store.add_activity(connection, activity)
    target = msgspec.structs.replace(target, minimum=minimum, maximum=maximum)
    adjusted = autoscaler.adjust(connection, target, capacity, now)
    if adjusted.adjusted_for is None and capacity.not_scalable is not None:
        _record_unscalable(connection, target, capacity, now)
    store.put_target(connection, adjusted)


def _refusal(minimum: int, maximum: int, capacity: Capacity | None) -> str | None:
    if capacity is None:
        return "The resource does not exist any more."
    if minimum > maximum:
        return f"The minimum capacity {minimum} is greater than the maximum capacity {maximum}."
    if minimum < capacity.minimum_allowed:
        return f"The minimum value that the resource can accept is {capacity.minimum_allowed}."
    return None


def _record_unscalable(
    connection: Connection, target: ScalableTargetRecord, capacity: Capacity, now: float
) -> None:
    """Writes that the count could not follow now. The loop makes it follow as soon as it can."""
    desired = min(max(capacity.desired, target.minimum), target.maximum)
    bound = "minimum" if desired == target.minimum else "maximum"
    cause = f"{bound} capacity was set to {desired}"
    activity = change_activity(
        target.key, cause, now, desired=desired, capacity=capacity.desired, before=None
    )
    message = f"Resource Id [{target.resource_id}] is not scalable. Reason: {capacity.not_scalable}"
    activity = msgspec.structs.replace(
        activity, status=ActivityStatus.FAILED, ended_at=now, message=message
    )
    store.add_activity(connection, activity)
