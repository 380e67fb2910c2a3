"""AWS::ApplicationAutoScaling::ScalableTarget, with its scheduled actions, and ::ScalingPolicy."""

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

import botocore.session
from botocore.exceptions import ClientError
from botocore.model import ServiceModel

from sagehen.apply.client import Aws, Destination, code_of
from sagehen.apply.resources.resource import ActualState, ResourceKind
from sagehen.apply.template.schema import TEXT, Read, list_of, members_of, structure
from sagehen.base.errors import Invalid

__all__ = ["ScalableTargetKind", "ScalingPolicyKind"]

_TRIPLE = ("ResourceId", "ScalableDimension", "ServiceNamespace")
_SERVICE = "application-autoscaling"


@cache
def _model() -> ServiceModel:
    return botocore.session.get_session().get_service_model(_SERVICE)


def _members(operation: str) -> dict[str, Read]:
    return members_of(_model().operation_model(operation).input_shape)


def _target_id(properties: Mapping[str, Any]) -> str:
    """Returns what `Ref` of a scalable target is in CloudFormation."""
    return "|".join(properties[name] for name in _TRIPLE)


def _triple(target_id: str) -> dict[str, str]:
    parts = target_id.split("|")
    if len(parts) != len(_TRIPLE):
        raise Invalid(
            f"ScalingTargetId {target_id!r} is not the Ref of a scalable target. That has the form "
            "RESOURCE_ID|SCALABLE_DIMENSION|SERVICE_NAMESPACE."
        )
    return dict(zip(_TRIPLE, parts, strict=True))


class ScalableTargetKind(ResourceKind):
    """Scheduled actions belong to their target, and are told by their names."""

    type = "AWS::ApplicationAutoScaling::ScalableTarget"
    fixed = frozenset(_TRIPLE)
    # SageMaker's targets have the service's own role, whatever is given.
    unseen = frozenset({"RoleARN"})
    required = ("MaxCapacity", "MinCapacity", *_TRIPLE)

    @cached_property
    def members(self) -> Mapping[str, Read]:  # type: ignore[override]
        action = _members("PutScheduledAction")
        read_action = structure(
            {name: action[name] for name in action if name not in _TRIPLE},
            ("Schedule", "ScheduledActionName"),
        )
        register = _members("RegisterScalableTarget")
        names = ("MaxCapacity", "MinCapacity", "RoleARN", "SuspendedState", *_TRIPLE)
        return {
            **{name: register[name] for name in names},
            "ScheduledActions": list_of(read_action),
        }

    def attributes(
        self, name: str, properties: dict[str, Any], destination: Destination
    ) -> dict[str, str]:
        name = name or _target_id(properties)
        return {"Ref": name, "Id": name}

    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        triple = _triple(name or _target_id(properties))
        scaling = aws.client(_SERVICE)
        found = scaling.describe_scalable_targets(
            ServiceNamespace=triple["ServiceNamespace"],
            ResourceIds=[triple["ResourceId"]],
            ScalableDimension=triple["ScalableDimension"],
        )["ScalableTargets"]
        if not found:
            return None
        pages = scaling.get_paginator("describe_scheduled_actions").paginate(**triple)
        actions = {
            action["ScheduledActionName"]: _given(action)
            for page in pages
            for action in page["ScheduledActions"]
        }
        names = [action["ScheduledActionName"] for action in properties.get("ScheduledActions", ())]
        state = {**found[0], "ScheduledActions": [actions[one] for one in names if one in actions]}
        return ActualState(name=_target_id(triple), properties=state)

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> str:
        self._put(aws, properties)
        return _target_id(properties)

    def update(
        self, aws: Aws, actual: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        self._put(aws, after)
        kept = {action["ScheduledActionName"] for action in after.get("ScheduledActions", ())}
        for action in before.get("ScheduledActions", ()):
            if action["ScheduledActionName"] not in kept:
                self._delete_action(aws, after, action["ScheduledActionName"])

    def delete(self, aws: Aws, name: str) -> str | None:
        if not name:
            return None
        try:
            aws.client(_SERVICE).deregister_scalable_target(**_triple(name))
        except ClientError as error:
            if not _is_absence(error):
                raise
        return None

    def _put(self, aws: Aws, properties: dict[str, Any]) -> None:
        scaling = aws.client(_SERVICE)
        members = {key: value for key, value in properties.items() if key != "ScheduledActions"}
        scaling.register_scalable_target(**members)
        triple = {name: properties[name] for name in _TRIPLE}
        for action in properties.get("ScheduledActions", ()):
            scaling.put_scheduled_action(**triple, **action)

    def _delete_action(self, aws: Aws, properties: dict[str, Any], name: str) -> None:
        triple = {key: properties[key] for key in _TRIPLE}
        try:
            aws.client(_SERVICE).delete_scheduled_action(ScheduledActionName=name, **triple)
        except ClientError as error:
            if not _is_absence(error):
                raise


class ScalingPolicyKind(ResourceKind):
    """A policy of a scalable target, which `ScalingTargetId` or the three members name."""

    type = "AWS::ApplicationAutoScaling::ScalingPolicy"
    fixed = frozenset({"PolicyName", "ScalingTargetId", *_TRIPLE})
    required = ("PolicyName", "PolicyType")

    @cached_property
    def members(self) -> Mapping[str, Read]:  # type: ignore[override]
        return {**_members("PutScalingPolicy"), "ScalingTargetId": TEXT}

    def check(self, properties: dict[str, Any]) -> dict[str, Any]:
        named = [name for name in _TRIPLE if name in properties]
        if "ScalingTargetId" in properties:
            if named:
                raise Invalid(f"#: ScalingTargetId does not go with {named[0]}")
        elif len(named) < len(_TRIPLE):
            raise Invalid(
                "#: either ScalingTargetId or all of " + ", ".join(_TRIPLE) + " is needed"
            )
        return properties

    def attributes(
        self, name: str, properties: dict[str, Any], destination: Destination
    ) -> dict[str, str]:
        return {"Ref": name, "Arn": name}

    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        policy = _find_policy(aws, name) if name else _find_named(aws, properties)
        if policy is None:
            return None
        return ActualState(
            name=policy["PolicyARN"],
            properties={**policy, "ScalingTargetId": _target_id(policy)},
        )

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> str:
        return self._put(aws, properties)

    def update(
        self, aws: Aws, actual: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        self._put(aws, after)

    def delete(self, aws: Aws, name: str) -> str | None:
        if not name:
            return None
        policy = _find_policy(aws, name)
        if policy is None:
            return None
        members = {key: policy[key] for key in ("PolicyName", *_TRIPLE)}
        try:
            aws.client(_SERVICE).delete_scaling_policy(**members)
        except ClientError as error:
            if not _is_absence(error):
                raise
        return None

    def _put(self, aws: Aws, properties: dict[str, Any]) -> str:
        members = {key: value for key, value in properties.items() if key != "ScalingTargetId"}
        if "ScalingTargetId" in properties:
            members |= _triple(properties["ScalingTargetId"])
        return str(aws.client(_SERVICE).put_scaling_policy(**members)["PolicyARN"])


def _find_policy(aws: Aws, arn: str) -> dict[str, Any] | None:
    """Finds a policy by its ARN, which does not tell the scalable dimension."""
    resource, _, name = arn.partition(":policyName/")
    namespace, _, resource_id = resource.partition(":resource/")[2].partition("/")
    found = aws.client(_SERVICE).describe_scaling_policies(
        ServiceNamespace=namespace, ResourceId=resource_id, PolicyNames=[name]
    )
    policies: list[dict[str, Any]] = found["ScalingPolicies"]
    return next((policy for policy in policies if policy["PolicyARN"] == arn), None)


def _find_named(aws: Aws, properties: Mapping[str, Any]) -> dict[str, Any] | None:
    if "ScalingTargetId" in properties:
        target_id = properties["ScalingTargetId"]
        if target_id.count("|") != 2:
            return None  # The target is not made yet.
        triple = _triple(target_id)
    else:
        triple = {name: properties[name] for name in _TRIPLE}
    found = aws.client(_SERVICE).describe_scaling_policies(
        PolicyNames=[properties["PolicyName"]], **triple
    )
    return next(iter(found["ScalingPolicies"]), None)


def _given(action: dict[str, Any]) -> dict[str, Any]:
    """Returns the members of a described scheduled action that are given to PutScheduledAction."""
    members = _model().operation_model("PutScheduledAction").input_shape.members
    return {key: value for key, value in action.items() if key in members and key not in _TRIPLE}


def _is_absence(error: ClientError) -> bool:
    return code_of(error) == "ObjectNotFoundException"
