"""AWS::CloudWatch::Alarm."""

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

import botocore.session
from botocore.model import ServiceModel

from sagehen.apply.client import Aws, Destination
from sagehen.apply.resources.resource import ActualState, ResourceKind, tag_changes
from sagehen.apply.template.schema import Read, members_of

__all__ = ["MetricAlarmKind"]


@cache
def _model() -> ServiceModel:
    return botocore.session.get_session().get_service_model("cloudwatch")


class MetricAlarmKind(ResourceKind):
    """CloudFormation's properties are the members of PutMetricAlarm."""

    type = "AWS::CloudWatch::Alarm"
    name_property = "AlarmName"
    longest_name = 255
    fixed = frozenset({"AlarmName"})
    required = ("ComparisonOperator", "EvaluationPeriods")

    @cached_property
    def members(self) -> Mapping[str, Read]:  # type: ignore[override]
        return members_of(_model().operation_model("PutMetricAlarm").input_shape)

    def attributes(
        self, name: str, properties: dict[str, Any], destination: Destination
    ) -> dict[str, str]:
        # An alarm's ARN has a colon before the name, not a slash.
        return {"Ref": name, "Arn": destination.arn("cloudwatch", f"alarm:{name}")}

    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        cloudwatch = aws.client("cloudwatch")
        found = cloudwatch.describe_alarms(AlarmNames=[name], AlarmTypes=["MetricAlarm"])
        if not found["MetricAlarms"]:
            return None
        alarm = dict(found["MetricAlarms"][0])
        alarm["Tags"] = cloudwatch.list_tags_for_resource(ResourceARN=alarm["AlarmArn"])["Tags"]
        return ActualState(name=name, properties=alarm)

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> None:
        aws.client("cloudwatch").put_metric_alarm(**{**properties, "AlarmName": name})

    def update(
        self, aws: Aws, actual: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        cloudwatch, arn = aws.client("cloudwatch"), actual.properties["AlarmArn"]
        members = {key: value for key, value in after.items() if key != "Tags"}
        cloudwatch.put_metric_alarm(**{**members, "AlarmName": actual.name})
        tags, removed_keys = tag_changes(actual, before, after)
        if removed_keys:
            cloudwatch.untag_resource(ResourceARN=arn, TagKeys=removed_keys)
        if tags:
            cloudwatch.tag_resource(ResourceARN=arn, Tags=tags)

    def delete(self, aws: Aws, name: str) -> str | None:
        aws.client("cloudwatch").delete_alarms(AlarmNames=[name])
        return None
