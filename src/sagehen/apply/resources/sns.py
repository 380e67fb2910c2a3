"""AWS::SNS::Topic with its inline subscriptions, and AWS::SNS::Subscription."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from sagehen.apply.client import Aws, Destination, code_of
from sagehen.apply.resources.resource import ActualState, ResourceKind, tag_changes
from sagehen.apply.template.schema import (
    FLAG,
    JSON,
    TEXT,
    Read,
    keyed_tags,
    list_of,
    one_of,
    structure,
)

__all__ = ["SubscriptionKind", "TopicKind"]


class TopicKind(ResourceKind):
    type = "AWS::SNS::Topic"
    name_property = "TopicName"
    longest_name = 256
    fixed = frozenset({"TopicName"})
    members: Mapping[str, Read] = {
        "DisplayName": TEXT,
        "KmsMasterKeyId": TEXT,
        "SignatureVersion": one_of("1", "2"),
        "Subscription": list_of(
            structure({"Endpoint": TEXT, "Protocol": TEXT}, ("Endpoint", "Protocol"))
        ),
        "Tags": keyed_tags,
        "TopicName": TEXT,
        "TracingConfig": one_of("PassThrough", "Active"),
    }
    _attributes = ("DisplayName", "KmsMasterKeyId", "SignatureVersion", "TracingConfig")

    def attributes(
        self, name: str, properties: dict[str, Any], destination: Destination
    ) -> dict[str, str]:
        arn = destination.arn("sns", name)
        return {"Ref": arn, "TopicArn": arn, "TopicName": name}

    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        sns, arn = aws.client("sns"), Destination(aws).arn("sns", name)
        try:
            attributes = sns.get_topic_attributes(TopicArn=arn)["Attributes"]
            tags = sns.list_tags_for_resource(ResourceArn=arn)["Tags"]
            existing = {(item["Protocol"], item["Endpoint"]) for item in _subscriptions(aws, arn)}
        except ClientError as error:
            if code_of(error) in ("NotFound", "ResourceNotFound"):
                return None
            raise
        subscriptions = [
            desired
            for desired in properties.get("Subscription", [])
            if (desired["Protocol"], desired["Endpoint"]) in existing
        ]
        return ActualState(
            name=name, properties={**attributes, "Tags": tags, "Subscription": subscriptions}
        )

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> None:
        attributes = {key: properties[key] for key in self._attributes if properties.get(key)}
        tags = properties.get("Tags", [])
        answer = aws.client("sns").create_topic(Name=name, Attributes=attributes, Tags=tags)
        self._subscribe(aws, answer["TopicArn"], properties.get("Subscription", []))

    def update(
        self, aws: Aws, actual: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        sns, arn = aws.client("sns"), Destination(aws).arn("sns", actual.name)
        for key in self._attributes:
            is_ours, value = key in after or key in before, after.get(key, "")
            if is_ours and actual.properties.get(key, "") != value:
                sns.set_topic_attributes(TopicArn=arn, AttributeName=key, AttributeValue=value)
        tags, removed_keys = tag_changes(actual, before, after)
        if removed_keys:
            sns.untag_resource(ResourceArn=arn, TagKeys=removed_keys)
        if tags:
            sns.tag_resource(ResourceArn=arn, Tags=tags)
        desired = after.get("Subscription", [])
        self._subscribe(aws, arn, desired)
        dropped = [item for item in before.get("Subscription", []) if item not in desired]
        for listed in _subscriptions(aws, arn):
            if {"Endpoint": listed["Endpoint"], "Protocol": listed["Protocol"]} in dropped:
                _unsubscribe(aws, listed)

    def delete(self, aws: Aws, name: str) -> str | None:
        aws.client("sns").delete_topic(TopicArn=Destination(aws).arn("sns", name))
        return None

    def _subscribe(self, aws: Aws, arn: str, desired: list[dict[str, str]]) -> None:
        existing = {(item["Protocol"], item["Endpoint"]) for item in _subscriptions(aws, arn)}
        for item in desired:
            # Subscribing again would resend a pending confirmation.
            if (item["Protocol"], item["Endpoint"]) not in existing:
                aws.client("sns").subscribe(TopicArn=arn, **item)


class SubscriptionKind(ResourceKind):
    """Topic, protocol and endpoint identify a subscription until its ARN is known."""

    type = "AWS::SNS::Subscription"
    fixed = frozenset({"Endpoint", "Protocol", "TopicArn"})
    required = ("TopicArn", "Protocol", "Endpoint")
    members: Mapping[str, Read] = {
        "DeliveryPolicy": JSON,
        "Endpoint": TEXT,
        "FilterPolicy": JSON,
        "FilterPolicyScope": one_of("MessageAttributes", "MessageBody"),
        "Protocol": TEXT,
        "RawMessageDelivery": FLAG,
        "RedrivePolicy": JSON,
        "TopicArn": TEXT,
        "WebhookSecret": TEXT,
    }
    _attributes = tuple(sorted(members.keys() - fixed))
    _of_json = ("DeliveryPolicy", "FilterPolicy", "RedrivePolicy")

    def attributes(
        self, name: str, properties: dict[str, Any], destination: Destination
    ) -> dict[str, str]:
        return {"Ref": name, "Arn": name}

    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        if name:
            return self._read_attributes(aws, name)
        listed = self._find(aws, properties)
        if listed is None:
            return None
        if not _is_confirmed(listed):
            # SNS does not tell its ARN nor its attributes: take them for those of the template.
            return ActualState(name="", properties=properties)
        return self._read_attributes(aws, listed["SubscriptionArn"])

    def with_name(self, aws: Aws, actual: ActualState) -> ActualState:
        """Asks an unconfirmed subscription to confirm once more: only then SNS tells its ARN."""
        if actual.name:
            return actual
        arn = _subscribe_again(aws, actual.properties)
        return self._read_attributes(aws, arn) or msgspec.structs.replace(actual, name=arn)

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> str:
        fixed = {key: properties[key] for key in self.required}
        attributes = {key: _text(properties[key]) for key in self._attributes if key in properties}
        subscribe = aws.client("sns").subscribe
        answer = subscribe(**fixed, Attributes=attributes, ReturnSubscriptionArn=True)
        return str(answer["SubscriptionArn"])

    def update(
        self, aws: Aws, actual: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        for key in self._attributes:
            is_ours = key in after or key in before
            if is_ours and actual.properties.get(key) != after.get(key):
                aws.client("sns").set_subscription_attributes(
                    SubscriptionArn=actual.name,
                    AttributeName=key,
                    AttributeValue=_text(after.get(key, "")),
                )

    def delete(self, aws: Aws, name: str) -> str | None:
        if name:
            aws.client("sns").unsubscribe(SubscriptionArn=name)
        return None

    def _read_attributes(self, aws: Aws, arn: str) -> ActualState | None:
        try:
            answer = aws.client("sns").get_subscription_attributes(SubscriptionArn=arn)
        except ClientError as error:
            if code_of(error) == "NotFound":
                return None
            raise
        properties = dict(answer["Attributes"])
        for key in self._of_json:
            if key in properties:
                properties[key] = json.loads(properties[key])
        properties["RawMessageDelivery"] = properties.get("RawMessageDelivery") == "true"
        return ActualState(name=arn, properties=properties)

    def _find(self, aws: Aws, properties: dict[str, Any]) -> dict[str, str] | None:
        key = (properties["Protocol"], properties["Endpoint"])
        try:
            for listed in _subscriptions(aws, properties["TopicArn"]):
                if (listed["Protocol"], listed["Endpoint"]) == key:
                    return listed
        except ClientError as error:
            if code_of(error) != "NotFound":
                raise
        return None


def _subscriptions(aws: Aws, topic_arn: str) -> Iterator[dict[str, str]]:
    pages = aws.client("sns").get_paginator("list_subscriptions_by_topic")
    for page in pages.paginate(TopicArn=topic_arn):
        yield from page["Subscriptions"]


def _is_confirmed(listed: dict[str, str]) -> bool:
    return listed["SubscriptionArn"].startswith("arn:")


def _subscribe_again(aws: Aws, properties: Mapping[str, Any]) -> str:
    """Returns the ARN of an existing subscription, which is asked to confirm again."""
    fixed = {key: properties[key] for key in ("TopicArn", "Protocol", "Endpoint")}
    answer = aws.client("sns").subscribe(**fixed, ReturnSubscriptionArn=True)
    return str(answer["SubscriptionArn"])


def _unsubscribe(aws: Aws, listed: dict[str, str]) -> None:
    is_confirmed = _is_confirmed(listed)
    arn = listed["SubscriptionArn"] if is_confirmed else _subscribe_again(aws, listed)
    aws.client("sns").unsubscribe(SubscriptionArn=arn)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)
