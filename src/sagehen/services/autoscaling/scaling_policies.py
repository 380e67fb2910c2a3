"""The operations of scaling policies."""

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.frame.context import RequestContext
from sagehen.frame.named_records import as_time
from sagehen.services.autoscaling import store
from sagehen.services.autoscaling.errors import invalid, no_policy, over_limit
from sagehen.services.autoscaling.records import (
    NAMESPACE,
    AlarmName,
    PolicyRecord,
    ScalableTargetRecord,
    TargetKey,
)
from sagehen.services.autoscaling.resources import Alarms
from sagehen.services.autoscaling.tables import POLICIES
from sagehen.services.autoscaling.targets import existing_target
from sagehen.services.autoscaling.tracking_alarms import alarm_definitions, metric_of
from sagehen.services.autoscaling.validation import (
    check_policy,
    check_predictive,
    optional_key,
    page_size,
    read_position,
    target_key,
    write_position,
)
from sagehen.wire.errors import AwsError

__all__ = [
    "MAX_POLICIES",
    "delete_scaling_policy",
    "describe_scaling_policies",
    "get_predictive_scaling_forecast",
    "put_scaling_policy",
]

MAX_POLICIES = 50
"""of a scalable target"""
PAGE = 10
"""a quarter of what the other lists have"""
_TRACKING = "TargetTrackingScaling"
_MEMBERS = {
    _TRACKING: "TargetTrackingScalingPolicyConfiguration",
    "StepScaling": "StepScalingPolicyConfiguration",
}


def put_scaling_policy(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Creates a policy, or replaces its configuration, with its alarms."""
    check_predictive(params.get("PolicyType"), params)
    key, now = target_key(params), call.clock.now()
    with call.database.write() as connection:
        target = existing_target(connection, key)
        before = store.find_policy(connection, target.target_id, params["PolicyName"])
        policy_type = _type_of(params, before)
        configuration = _configuration(params, policy_type, before, key)
        _check_metric(connection, target, params["PolicyName"], policy_type, configuration)
        if before is None:
            policy = _new_policy(call, connection, target, params["PolicyName"], policy_type, now)
        else:
            policy = before
        policy = msgspec.structs.replace(policy, configuration=configuration, breach=None)
        if policy_type == _TRACKING:
            policy = _with_alarms(call, connection, key, policy, before, now)
        store.put_policy(connection, policy)
    return {"PolicyARN": policy.arn, "Alarms": _listed(policy)}


def _type_of(params: Mapping[str, Any], before: PolicyRecord | None) -> str:
    policy_type: str | None = params.get("PolicyType")
    if before is None:
        if policy_type is None:
            raise invalid("PolicyType is required to create a scaling policy.")
        return policy_type
    if policy_type not in (None, before.policy_type):
        raise invalid(
            f"Policy {before.name} is of type {before.policy_type}, and a policy's type cannot be "
            "changed. Delete it, or give the new one another name."
        )
    return before.policy_type


def _configuration(
    params: Mapping[str, Any], policy_type: str, before: PolicyRecord | None, key: TargetKey
) -> dict[str, Any]:
    if before is not None and not any(member in params for member in _MEMBERS.values()):
        return before.configuration
    return check_policy(policy_type, params, key.dimension)


def _check_metric(
    connection: Connection,
    target: ScalableTargetRecord,
    name: str,
    policy_type: str,
    configuration: Mapping[str, Any],
) -> None:
    if policy_type != _TRACKING:
        return
    for other in store.policies_of(connection, target.target_id):
        same_type = other.name != name and other.policy_type == _TRACKING
        if same_type and metric_of(other.configuration) == metric_of(configuration):
            raise invalid(
                f"Policy {other.name} tracks this metric already. Each target tracking policy of a "
                "scalable target has to use a metric of its own."
            )


def _new_policy(
    call: RequestContext,
    connection: Connection,
    target: ScalableTargetRecord,
    name: str,
    policy_type: str,
    now: float,
) -> PolicyRecord:
    if store.count(connection, POLICIES, target.target_id) >= MAX_POLICIES:
        raise over_limit(f"A scalable target may have {MAX_POLICIES} scaling policies.")
    policy_id = str(uuid.uuid4())
    return PolicyRecord(
        policy_id=policy_id,
        target_id=target.target_id,
        name=name,
        arn=call.arns.scaling_policy(policy_id, target.resource_id, name),
        policy_type=policy_type,
        configuration={},
        created_at=now,
    )


def _with_alarms(
    call: RequestContext,
    connection: Connection,
    key: TargetKey,
    policy: PolicyRecord,
    before: PolicyRecord | None,
    now: float,
) -> PolicyRecord:
    """Puts the alarms of a tracking policy. While it tracks the same metric they keep their names,
    and so their states."""
    unique = {name: str(uuid.uuid4()) for name in ("AlarmHigh", "AlarmLow", "action")}
    old = [alarm.alarm_name for alarm in policy.alarms]
    if before and metric_of(before.configuration) == metric_of(policy.configuration):
        for kind in ("AlarmHigh", "AlarmLow"):
            for name in old:
                if f"-{kind}-" in name:
                    unique[kind] = name.rpartition(f"-{kind}-")[2]
    seconds = call.settings.target_tracking_scale_in_seconds
    definitions = alarm_definitions(key, policy, unique, seconds)
    names = [definition["AlarmName"] for definition in definitions]
    alarms: Alarms = call.autoscaling.alarms
    if surplus := [name for name in old if name not in names]:
        alarms.delete(connection, surplus, now)
    shown = []
    try:
        for definition in definitions:
            arn = alarms.put(connection, definition, now)
            shown.append(AlarmName(alarm_name=definition["AlarmName"], alarm_arn=arn))
    except AwsError as error:
        over = error.code.startswith("LimitExceeded")
        raise over_limit(error.message) if over else invalid(error.message) from error
    return msgspec.structs.replace(policy, alarms=tuple(shown))


def delete_scaling_policy(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Deletes a policy with the alarms that were made for it."""
    key, name = target_key(params), params["PolicyName"]
    with call.database.write() as connection:
        target = store.find_target(connection, key, lock=True)
        policy = None if target is None else store.find_policy(connection, target.target_id, name)
        if policy is None:
            raise no_policy(key, name)
        call.autoscaling.delete_alarms(connection, policy, call.clock.now())
        store.delete_policy(connection, policy.policy_id)
    return {}


def describe_scaling_policies(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    limit = page_size(params, PAGE)
    key = optional_key(params)
    after = read_position(params.get("NextToken"), 3)
    names = params.get("PolicyNames") or None
    with call.database.read() as connection:
        found = store.listed_policies(connection, key, names, after, limit + 1)
    answer: dict[str, Any] = {"ScalingPolicies": [_summary(*one) for one in found[:limit]]}
    if len(found) > limit:
        policy, of = found[limit - 1]
        answer["NextToken"] = write_position(of.resource_id, of.dimension, policy.name)
    return answer


def _summary(policy: PolicyRecord, key: TargetKey) -> dict[str, Any]:
    return {
        "PolicyARN": policy.arn,
        "PolicyName": policy.name,
        "ServiceNamespace": NAMESPACE,
        "ResourceId": key.resource_id,
        "ScalableDimension": key.dimension,
        "PolicyType": policy.policy_type,
        _MEMBERS[policy.policy_type]: policy.configuration,
        "Alarms": _listed(policy),
        "CreationTime": as_time(policy.created_at),
    }


def _listed(policy: PolicyRecord) -> list[dict[str, str]]:
    return [msgspec.to_builtins(alarm) for alarm in policy.alarms]


def get_predictive_scaling_forecast(_: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    target_key(params)
    raise invalid(
        "GetPredictiveScalingForecast is not supported for the service namespace sagemaker, which "
        "has no predictive scaling policies."
    )
