"""AWS::SQS::Queue."""

import json
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from sagehen.apply.client import Aws, Destination, code_of
from sagehen.apply.resources.resource import ActualState, ResourceKind, tag_changes
from sagehen.apply.template.schema import FLAG, JSON, TEXT, WHOLE, Read, keyed_tags

__all__ = ["QueueKind"]

_GONE = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")


class QueueKind(ResourceKind):
    type = "AWS::SQS::Queue"
    name_property = "QueueName"
    longest_name = 80
    fixed = frozenset({"QueueName"})
    members: Mapping[str, Read] = {
        "DelaySeconds": WHOLE,
        "KmsDataKeyReusePeriodSeconds": WHOLE,
        "KmsMasterKeyId": TEXT,
        "MaximumMessageSize": WHOLE,
        "MessageRetentionPeriod": WHOLE,
        "QueueName": TEXT,
        "ReceiveMessageWaitTimeSeconds": WHOLE,
        "RedriveAllowPolicy": JSON,
        "RedrivePolicy": JSON,
        "SqsManagedSseEnabled": FLAG,
        "Tags": keyed_tags,
        "VisibilityTimeout": WHOLE,
    }
    _attributes = tuple(sorted(members.keys() - {"QueueName", "Tags"}))

    def attributes(
        self, name: str, properties: dict[str, Any], destination: Destination
    ) -> dict[str, str]:
        url = f"{destination.url}/{destination.account_id}/{name}"
        return {"Ref": url, "QueueUrl": url, "Arn": destination.arn("sqs", name), "QueueName": name}

    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        sqs = aws.client("sqs")
        try:
            url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
            attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])[
                "Attributes"
            ]
            tags = sqs.list_queue_tags(QueueUrl=url).get("Tags", {})
        except ClientError as error:
            if code_of(error) in _GONE:
                return None
            raise
        actual: dict[str, Any] = {
            key: _value(self.members[key], attributes[key])
            for key in attributes
            if key in self._attributes
        }
        actual["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
        return ActualState(name=name, properties=actual, attributes={"Ref": url, "QueueUrl": url})

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> None:
        attributes = {key: _text(properties[key]) for key in self._attributes if key in properties}
        tags = {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])}
        aws.client("sqs").create_queue(QueueName=name, Attributes=attributes, tags=tags)

    def update(
        self, aws: Aws, actual: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        sqs, url = aws.client("sqs"), actual.attributes["QueueUrl"]
        attributes = {key: _text(after[key]) for key in self._attributes if key in after}
        taken_back = {key: "" for key in self._attributes if key in before and key not in after}
        if attributes or taken_back:
            sqs.set_queue_attributes(QueueUrl=url, Attributes=attributes | taken_back)
        tags, removed_keys = tag_changes(actual, before, after)
        if removed_keys:
            sqs.untag_queue(QueueUrl=url, TagKeys=removed_keys)
        if tags:
            sqs.tag_queue(QueueUrl=url, Tags={tag["Key"]: tag["Value"] for tag in tags})

    def delete(self, aws: Aws, name: str) -> str | None:
        sqs = aws.client("sqs")
        try:
            sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"])
        except ClientError as error:
            if code_of(error) not in _GONE:
                raise
        return None


def _value(read: Any, text: str) -> Any:
    return read(text, "#")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, dict) else str(value)
