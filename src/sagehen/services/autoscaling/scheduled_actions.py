"""The operations of scheduled actions."""

import uuid
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.base.errors import Invalid
from sagehen.frame.context import RequestContext
from sagehen.frame.named_records import as_time
from sagehen.services.autoscaling import store
from sagehen.services.autoscaling.errors import invalid, no_scheduled_action, over_limit
from sagehen.services.autoscaling.records import (
    NAMESPACE,
    ScalableTargetRecord,
    ScheduledActionRecord,
    TargetKey,
)
from sagehen.services.autoscaling.schedules.schedule import At, next_run, parse_schedule
from sagehen.services.autoscaling.tables import SCHEDULED_ACTIONS
from sagehen.services.autoscaling.targets import existing_target
from sagehen.services.autoscaling.validation import (
    LARGEST_CAPACITY,
    optional_key,
    page_size,
    read_position,
    seconds_of,
    target_key,
    write_position,
)

__all__ = [
    "MAX_ACTIONS",
    "delete_scheduled_action",
    "describe_scheduled_actions",
    "put_scheduled_action",
]

MAX_ACTIONS = 200
"""of a scalable target"""


def put_scheduled_action(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Creates an action, or changes the members that are given. An update without StartTime and
    EndTime deletes the old ones, unlike all other members."""
    key, now = target_key(params), call.clock.now()
    with call.database.write() as connection:
        target = existing_target(connection, key)
        name = params["ScheduledActionName"]
        before = store.find_action(connection, target.target_id, name)
        action = before or _new_action(call, connection, target, params, now)
        store.put_action(connection, _merged(action, params, now))
    return {}


def _new_action(
    call: RequestContext,
    connection: Connection,
    target: ScalableTargetRecord,
    params: dict[str, Any],
    now: float,
) -> ScheduledActionRecord:
    if "Schedule" not in params:
        raise invalid("Schedule is required to create a scheduled action.")
    if "ScalableTargetAction" not in params:
        raise invalid("ScalableTargetAction is required to create a scheduled action.")
    if store.count(connection, SCHEDULED_ACTIONS, target.target_id) >= MAX_ACTIONS:
        raise over_limit(f"A scalable target may have {MAX_ACTIONS} scheduled actions.")
    action_id, name = str(uuid.uuid4()), params["ScheduledActionName"]
    return ScheduledActionRecord(
        action_id=action_id,
        target_id=target.target_id,
        name=name,
        arn=call.arns.scheduled_action(action_id, target.resource_id, name),
        schedule=params["Schedule"],
        created_at=now,
    )


def _merged(
    action: ScheduledActionRecord, params: dict[str, Any], now: float
) -> ScheduledActionRecord:
    bounds = params.get("ScalableTargetAction")
    action = msgspec.structs.replace(
        action,
        schedule=params.get("Schedule", action.schedule),
        timezone=params.get("Timezone", action.timezone),
        starts_at=seconds_of(params.get("StartTime")),
        ends_at=seconds_of(params.get("EndTime")),
        minimum=action.minimum if bounds is None else bounds.get("MinCapacity"),
        maximum=action.maximum if bounds is None else bounds.get("MaxCapacity"),
    )
    _check_bounds(action)
    _check_times(action, now)
    next_at = _first_run(action, params, now)
    return msgspec.structs.replace(
        action, next_at=next_at, ended_at=now if next_at is None else None
    )


def _check_bounds(action: ScheduledActionRecord) -> None:
    minimum, maximum = action.minimum, action.maximum
    if minimum is None and maximum is None:
        raise invalid("At least one of minimum capacity and maximum capacity should be provided")
    for name, value in (("MinCapacity", minimum), ("MaxCapacity", maximum)):
        if value is not None and not 0 <= value <= LARGEST_CAPACITY:
            raise invalid(f"{name} must be from 0 to {LARGEST_CAPACITY}, not {value}.")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise invalid(
            f"MinCapacity must not be greater than MaxCapacity: {minimum} is more than {maximum}."
        )


def _check_times(action: ScheduledActionRecord, now: float) -> None:
    starts_at, ends_at = action.starts_at, action.ends_at
    if ends_at is not None and ends_at <= now:
        raise invalid("EndTime has to be in the future.")
    if starts_at is not None and ends_at is not None and ends_at <= starts_at:
        raise invalid("EndTime has to be after StartTime.")


def _first_run(action: ScheduledActionRecord, params: dict[str, Any], now: float) -> float | None:
    try:
        schedule = parse_schedule(action.schedule, action.timezone)
    except Invalid as error:
        raise invalid(f"{error}.") from error
    # A rate counts from now if it is new.
    begins_at = now if "Schedule" in params else action.created_at
    first = next_run(schedule, now, begins_at, action.starts_at, action.ends_at)
    if first is None and "Schedule" in params:
        when = "is in the past" if isinstance(schedule, At) else "never comes"
        raise invalid(f"The schedule {action.schedule} {when}.")
    return first


def delete_scheduled_action(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    key, name = target_key(params), params["ScheduledActionName"]
    with call.database.write() as connection:
        target = store.find_target(connection, key, lock=True)
        action = None if target is None else store.find_action(connection, target.target_id, name)
        if action is None:
            raise no_scheduled_action(key, name)
        store.delete_action(connection, action.action_id)
    return {}


def describe_scheduled_actions(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    limit = page_size(params, 50)
    key = optional_key(params)
    after = read_position(params.get("NextToken"), 3)
    names = params.get("ScheduledActionNames") or None
    with call.database.read() as connection:
        found = store.listed_actions(connection, key, names, after, limit + 1)
    answer: dict[str, Any] = {"ScheduledActions": [_summary(*one) for one in found[:limit]]}
    if len(found) > limit:
        action, of = found[limit - 1]
        answer["NextToken"] = write_position(of.resource_id, of.dimension, action.name)
    return answer


def _summary(action: ScheduledActionRecord, key: TargetKey) -> dict[str, Any]:
    bounds = {"MinCapacity": action.minimum, "MaxCapacity": action.maximum}
    summary: dict[str, Any] = {
        "ScheduledActionName": action.name,
        "ScheduledActionARN": action.arn,
        "ServiceNamespace": NAMESPACE,
        "Schedule": action.schedule,
        "Timezone": action.timezone,
        "ResourceId": key.resource_id,
        "ScalableDimension": key.dimension,
        "ScalableTargetAction": {
            name: value for name, value in bounds.items() if value is not None
        },
        "CreationTime": as_time(action.created_at),
    }
    if action.starts_at is not None:
        summary["StartTime"] = as_time(action.starts_at)
    if action.ends_at is not None:
        summary["EndTime"] = as_time(action.ends_at)
    return summary
