"""The operations of scalable targets and their tags."""

import uuid
from typing import Any

import msgspec
from sqlalchemy import Connection

from sagehen.frame import tags
from sagehen.frame.context import RequestContext
from sagehen.frame.named_records import as_time
from sagehen.services.autoscaling import store
from sagehen.services.autoscaling.autoscaler import Autoscaler
from sagehen.services.autoscaling.errors import (
    invalid,
    no_resource,
    no_target,
    over_limit,
    too_many_tags,
)
from sagehen.services.autoscaling.records import (
    NAMESPACE,
    ScalableTargetRecord,
    Suspensions,
    TargetKey,
)
from sagehen.services.autoscaling.tables import TARGETS
from sagehen.services.autoscaling.validation import (
    check_bounds,
    optional_key,
    page_size,
    read_position,
    target_key,
    write_position,
)

__all__ = [
    "MAX_TARGETS",
    "deregister_scalable_target",
    "describe_scalable_targets",
    "existing_target",
    "list_tags_for_resource",
    "register_scalable_target",
    "tag_resource",
    "untag_resource",
]

MAX_TARGETS = 500
_ROLE = (
    "aws-service-role/sagemaker.application-autoscaling.amazonaws.com/"
    "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
)
"""what a target's role always is, whatever a request names"""


def register_scalable_target(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Creates a target, or changes the members that are given; then the resource's count is
    brought between the bounds."""
    key, now = target_key(params), call.clock.now()
    scaler: Autoscaler = call.autoscaling
    with call.database.write() as connection:
        capacity = scaler.capacity(connection, key)
        if capacity is None:
            raise invalid(f"SageMaker endpoint or variant doesn't exist: {key.resource_id}")
        before = store.find_target(connection, key, lock=True)
        if before is None and capacity.unregistrable is not None:
            raise invalid(capacity.unregistrable)
        target = before or _new_target(call, connection, key, params, now)
        target = _merged(target, params)
        check_bounds(target.minimum, target.maximum, capacity.minimum_allowed, key.dimension)
        _put_tags(connection, target.arn, params.get("Tags", {}))
        store.put_target(connection, scaler.adjust(connection, target, capacity, now))
    return {"ScalableTargetARN": target.arn}


def _new_target(
    call: RequestContext,
    connection: Connection,
    key: TargetKey,
    params: dict[str, Any],
    now: float,
) -> ScalableTargetRecord:
    for name in ("MinCapacity", "MaxCapacity"):
        if name not in params:
            raise invalid(f"{name} is required to register a new scalable target.")
    if store.count(connection, TARGETS) >= MAX_TARGETS:
        raise over_limit(f"There may be {MAX_TARGETS} scalable targets.")
    target_id = uuid.uuid4().hex + uuid.uuid4().hex[:2]
    return ScalableTargetRecord(
        target_id=target_id,
        resource_id=key.resource_id,
        dimension=key.dimension,
        arn=call.arns.scalable_target(target_id),
        minimum=params["MinCapacity"],
        maximum=params["MaxCapacity"],
        created_at=now,
    )


def _merged(target: ScalableTargetRecord, params: dict[str, Any]) -> ScalableTargetRecord:
    suspended = msgspec.to_builtins(target.suspended) | params.get("SuspendedState", {})
    return msgspec.structs.replace(
        target,
        minimum=params.get("MinCapacity", target.minimum),
        maximum=params.get("MaxCapacity", target.maximum),
        suspended=msgspec.convert(suspended, Suspensions),
    )


def deregister_scalable_target(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    """Deletes a target with its policies and scheduled actions; the count stays as it is."""
    key = target_key(params)
    with call.database.write() as connection:
        target = existing_target(connection, key)
        call.autoscaling.deregister(connection, target, call.clock.now())
    return {}


def existing_target(connection: Connection, key: TargetKey) -> ScalableTargetRecord:
    """Returns the target, whose row is locked; raises AwsError without one."""
    target = store.find_target(connection, key, lock=True)
    if target is None:
        raise no_target(key)
    return target


def describe_scalable_targets(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    limit = page_size(params, 50)
    _, dimension = optional_key(params)
    after = read_position(params.get("NextToken"), 2)
    resource_ids = params.get("ResourceIds") or None
    with call.database.read() as connection:
        found = store.listed_targets(connection, resource_ids, dimension, after, limit + 1)
    role = call.arns.role(_ROLE)
    answer: dict[str, Any] = {
        "ScalableTargets": [_summary(target, role) for target in found[:limit]]
    }
    if len(found) > limit:
        last = found[limit - 1]
        answer["NextToken"] = write_position(last.resource_id, last.dimension)
    return answer


def _summary(target: ScalableTargetRecord, role: str) -> dict[str, Any]:
    return {
        "ServiceNamespace": NAMESPACE,
        "ResourceId": target.resource_id,
        "ScalableDimension": target.dimension,
        "MinCapacity": target.minimum,
        "MaxCapacity": target.maximum,
        "RoleARN": role,
        "CreationTime": as_time(target.created_at),
        "SuspendedState": msgspec.to_builtins(target.suspended),
        "ScalableTargetARN": target.arn,
    }


def tag_resource(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    arn = params["ResourceARN"]
    with call.database.write() as connection:
        _check_exists(connection, arn)
        _put_tags(connection, arn, params["Tags"])
    return {}


def untag_resource(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    arn = params["ResourceARN"]
    with call.database.write() as connection:
        _check_exists(connection, arn)
        tags.delete(connection, arn, params["TagKeys"])
    return {}


def list_tags_for_resource(call: RequestContext, params: dict[str, Any]) -> dict[str, Any]:
    arn = params["ResourceARN"]
    with call.database.read() as connection:
        _check_exists(connection, arn)
        return {"Tags": tags.get(connection, arn)}


def _check_exists(connection: Connection, arn: str) -> None:
    if store.target_by_arn(connection, arn) is None:
        raise no_resource(arn)


def _put_tags(connection: Connection, arn: str, new_tags: dict[str, str]) -> None:
    if not new_tags:
        return
    if reserved := [key for key in new_tags if key.lower().startswith("aws:")]:
        raise invalid(f"Tag keys that begin with aws: are kept for AWS: {reserved[0]}.")
    if len(tags.get(connection, arn) | new_tags) > tags.MAX_TAGS:
        raise too_many_tags(arn, tags.MAX_TAGS)
    tags.put(connection, arn, new_tags)
