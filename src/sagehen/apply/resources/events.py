"""AWS::Events::Rule, with its targets."""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import botocore.session
from botocore.exceptions import ClientError

from sagehen.apply.client import Aws, Destination, code_of
from sagehen.apply.resources.resource import ActualState, ResourceKind, tag_changes
from sagehen.apply.template.schema import (
    JSON,
    TEXT,
    Read,
    keyed_tags,
    list_of,
    members_of,
    one_of,
    structure,
)

__all__ = ["RuleKind"]

_OF_RULE = ("Description", "EventBusName", "RoleArn", "State")


class RuleKind(ResourceKind):
    type = "AWS::Events::Rule"
    name_property = "Name"
    longest_name = 64
    fixed = frozenset({"EventBusName", "Name"})
    required = ("EventPattern",)

    @cached_property
    def members(self) -> Mapping[str, Read]:  # type: ignore[override]
        target = botocore.session.get_session().get_service_model("events").shape_for("Target")
        return {
            "Description": TEXT,
            "EventBusName": one_of("default"),
            "EventPattern": JSON,
            "Name": TEXT,
            "RoleArn": TEXT,
            "State": one_of("ENABLED", "DISABLED"),
            "Tags": keyed_tags,
            "Targets": list_of(structure(members_of(target), target.required_members)),
        }

    def attributes(
        self, name: str, properties: dict[str, Any], destination: Destination
    ) -> dict[str, str]:
        return {"Ref": name, "Arn": destination.arn("events", f"rule/{name}")}

    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        events = aws.client("events")
        try:
            rule = events.describe_rule(Name=name)
            pages = events.get_paginator("list_targets_by_rule").paginate(Rule=name)
            targets = {target["Id"]: target for page in pages for target in page["Targets"]}
            rule["Tags"] = events.list_tags_for_resource(ResourceARN=rule["Arn"])["Tags"]
        except ClientError as error:
            if code_of(error) == "ResourceNotFoundException":
                return None
            raise
        rule["EventPattern"] = json.loads(rule["EventPattern"])
        target_ids = [target["Id"] for target in properties.get("Targets", [])]
        rule["Targets"] = [targets[target] for target in target_ids if target in targets]
        return ActualState(name=name, properties=rule)

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> None:
        self._put(aws, name, properties, Tags=properties.get("Tags", []))

    def update(
        self, aws: Aws, actual: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        events, arn = aws.client("events"), actual.properties["Arn"]
        self._put(aws, actual.name, after)
        target_ids = {target["Id"] for target in after.get("Targets", [])}
        self._remove(
            aws, actual.name, {target["Id"] for target in before.get("Targets", [])} - target_ids
        )
        tags, removed_keys = tag_changes(actual, before, after)
        if removed_keys:
            events.untag_resource(ResourceARN=arn, TagKeys=removed_keys)
        if tags:
            events.tag_resource(ResourceARN=arn, Tags=tags)

    def delete(self, aws: Aws, name: str) -> str | None:
        actual = self.look(aws, name, {})
        if actual is not None:
            self._remove(aws, name, None)
            aws.client("events").delete_rule(Name=name)
        return None

    def _put(self, aws: Aws, name: str, properties: dict[str, Any], **more: Any) -> None:
        members = {key: properties[key] for key in _OF_RULE if key in properties}
        pattern = json.dumps(properties["EventPattern"])
        events = aws.client("events")
        events.put_rule(Name=name, EventPattern=pattern, **members, **more)
        if properties.get("Targets"):
            events.put_targets(Rule=name, Targets=properties["Targets"])

    def _remove(self, aws: Aws, name: str, ids: set[str] | None) -> None:
        """Removes targets, some of which may be gone already; None means all."""
        events = aws.client("events")
        pages = events.get_paginator("list_targets_by_rule").paginate(Rule=name)
        existing = {target["Id"] for page in pages for target in page["Targets"]}
        removed = sorted(existing if ids is None else existing & ids)
        if removed:
            events.remove_targets(Rule=name, Ids=removed)
