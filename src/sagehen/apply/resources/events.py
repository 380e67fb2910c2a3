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
        self, name: str, properties: dict[str, Any], place: Destination
    ) -> dict[str, str]:
        return {"Ref": name, "Arn": place.arn("events", f"rule/{name}")}

    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        events = aws.client("events")
        try:
            told = events.describe_rule(Name=name)
            pages = events.get_paginator("list_targets_by_rule").paginate(Rule=name)
            targets = {one["Id"]: one for page in pages for one in page["Targets"]}
            told["Tags"] = events.list_tags_for_resource(ResourceARN=told["Arn"])["Tags"]
        except ClientError as error:
            if code_of(error) == "ResourceNotFoundException":
                return None
            raise
        told["EventPattern"] = json.loads(told["EventPattern"])
        wanted = [one["Id"] for one in properties.get("Targets", [])]
        told["Targets"] = [targets[one] for one in wanted if one in targets]
        return ActualState(name=name, properties=told)

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> None:
        self._put(aws, name, properties, Tags=properties.get("Tags", []))

    def update(
        self, aws: Aws, live: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        events, arn = aws.client("events"), live.properties["Arn"]
        self._put(aws, live.name, after)
        wanted = {one["Id"] for one in after.get("Targets", [])}
        self._remove(aws, live.name, {one["Id"] for one in before.get("Targets", [])} - wanted)
        tags, gone = tag_changes(live, before, after)
        if gone:
            events.untag_resource(ResourceARN=arn, TagKeys=gone)
        if tags:
            events.tag_resource(ResourceARN=arn, Tags=tags)

    def delete(self, aws: Aws, name: str) -> str | None:
        live = self.look(aws, name, {})
        if live is not None:
            self._remove(aws, name, None)
            aws.client("events").delete_rule(Name=name)
        return None

    def _put(self, aws: Aws, name: str, properties: dict[str, Any], **more: Any) -> None:
        given = {key: properties[key] for key in _OF_RULE if key in properties}
        pattern = json.dumps(properties["EventPattern"])
        events = aws.client("events")
        events.put_rule(Name=name, EventPattern=pattern, **given, **more)
        if properties.get("Targets"):
            events.put_targets(Rule=name, Targets=properties["Targets"])

    def _remove(self, aws: Aws, name: str, ids: set[str] | None) -> None:
        """Removes targets, some of which may be gone already; None means all."""
        events = aws.client("events")
        pages = events.get_paginator("list_targets_by_rule").paginate(Rule=name)
        there = {one["Id"] for page in pages for one in page["Targets"]}
        removed = sorted(there if ids is None else there & ids)
        if removed:
            events.remove_targets(Rule=name, Ids=removed)
