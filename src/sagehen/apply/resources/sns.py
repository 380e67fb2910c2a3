"""AWS::SNS::Topic with its inline subscriptions, and AWS::SNS::Subscription."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

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
        self, name: str, properties: dict[str, Any], place: Destination
    ) -> dict[str, str]:
        arn = place.arn("sns", name)
        return {"Ref": arn, "TopicArn": arn, "TopicName": name}

    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        sns, arn = aws.client("sns"), Destination(aws).arn("sns", name)
        try:
            told = sns.get_topic_attributes(TopicArn=arn)["Attributes"]
            tags = sns.list_tags_for_resource(ResourceArn=arn)["Tags"]
            listed = {(one["Protocol"], one["Endpoint"]) for one in _subscriptions(aws, arn)}
        except ClientError as error:
            if code_of(error) in ("NotFound", "ResourceNotFound"):
                return None
            raise
        wanted = properties.get("Subscription", [])
        there = [one for one in wanted if (one["Protocol"], one["Endpoint"]) in listed]
        return ActualState(name=name, properties={**told, "Tags": tags, "Subscription": there})

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> None:
        given = {key: properties[key] for key in self._attributes if properties.get(key)}
        tags = properties.get("Tags", [])
        arn = aws.client("sns").create_topic(Name=name, Attributes=given, Tags=tags)["TopicArn"]
        self._subscribe(aws, arn, properties.get("Subscription", []))

    def update(
        self, aws: Aws, live: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        sns, arn = aws.client("sns"), Destination(aws).arn("sns", live.name)
        for key in self._attributes:
            ours, wanted = key in after or key in before, after.get(key, "")
            if ours and live.properties.get(key, "") != wanted:
                sns.set_topic_attributes(TopicArn=arn, AttributeName=key, AttributeValue=wanted)
        tags, gone = tag_changes(live, before, after)
        if gone:
            sns.untag_resource(ResourceArn=arn, TagKeys=gone)
        if tags:
            sns.tag_resource(ResourceArn=arn, Tags=tags)
        wanted = after.get("Subscription", [])
        self._subscribe(aws, arn, wanted)
        dropped = [one for one in before.get("Subscription", []) if one not in wanted]
        for one in _subscriptions(aws, arn):
            if {"Endpoint": one["Endpoint"], "Protocol": one["Protocol"]} in dropped:
                _unsubscribe(aws, one)

    def delete(self, aws: Aws, name: str) -> str | None:
        aws.client("sns").delete_topic(TopicArn=Destination(aws).arn("sns", name))
        return None

    def _subscribe(self, aws: Aws, arn: str, wanted: list[dict[str, str]]) -> None:
        there = {(one["Protocol"], one["Endpoint"]) for one in _subscriptions(aws, arn)}
        for one in wanted:
            # Subscribing again would resend a pending confirmation.
            if (one["Protocol"], one["Endpoint"]) not in there:
                aws.client("sns").subscribe(TopicArn=arn, **one)


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
        self, name: str, properties: dict[str, Any], place: Destination
    ) -> dict[str, str]:
        return {"Ref": name, "Arn": name}

    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState | None:
        arn = name or self._find(aws, properties)
        if not arn:
            return None
        try:
            told = aws.client("sns").get_subscription_attributes(SubscriptionArn=arn)
        except ClientError as error:
            if code_of(error) == "NotFound":
                return None
            raise
        found = dict(told["Attributes"])
        for key in self._of_json:
            if key in found:
                found[key] = json.loads(found[key])
        found["RawMessageDelivery"] = found.get("RawMessageDelivery") == "true"
        return ActualState(name=arn, properties=found)

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> None:
        fixed = {key: properties[key] for key in self.required}
        given = {key: _text(properties[key]) for key in self._attributes if key in properties}
        aws.client("sns").subscribe(**fixed, Attributes=given, ReturnSubscriptionArn=True)

    def update(
        self, aws: Aws, live: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        for key in self._attributes:
            ours = key in after or key in before
            if ours and live.properties.get(key) != after.get(key):
                aws.client("sns").set_subscription_attributes(
                    SubscriptionArn=live.name,
                    AttributeName=key,
                    AttributeValue=_text(after.get(key, "")),
                )

    def delete(self, aws: Aws, name: str) -> str | None:
        if name:
            aws.client("sns").unsubscribe(SubscriptionArn=name)
        return None

    def _find(self, aws: Aws, properties: dict[str, Any]) -> str:
        wanted = (properties["Protocol"], properties["Endpoint"])
        try:
            for one in _subscriptions(aws, properties["TopicArn"]):
                if (one["Protocol"], one["Endpoint"]) == wanted:
                    return _arn(aws, one)
        except ClientError as error:
            if code_of(error) != "NotFound":
                raise
        return ""


def _subscriptions(aws: Aws, topic_arn: str) -> Iterator[dict[str, str]]:
    pages = aws.client("sns").get_paginator("list_subscriptions_by_topic")
    for page in pages.paginate(TopicArn=topic_arn):
        yield from page["Subscriptions"]


def _arn(aws: Aws, listed: dict[str, str]) -> str:
    """Unconfirmed subscriptions are listed without ARN; subscribing again returns it."""
    if listed["SubscriptionArn"].startswith("arn:"):
        return listed["SubscriptionArn"]
    again = {key: listed[key] for key in ("TopicArn", "Protocol", "Endpoint")}
    told = aws.client("sns").subscribe(**again, ReturnSubscriptionArn=True)
    return str(told["SubscriptionArn"])


def _unsubscribe(aws: Aws, listed: dict[str, str]) -> None:
    aws.client("sns").unsubscribe(SubscriptionArn=_arn(aws, listed))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)
