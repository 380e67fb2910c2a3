"""Roles and policies, which the stack's record alone keeps until access control uses them."""

from collections.abc import Mapping
from typing import Any

from sagehen.apply.client import Aws, Destination
from sagehen.apply.resources.resource import ActualState, ResourceKind
from sagehen.apply.template.schema import JSON, TEXT, WHOLE, Read, keyed_tags, list_of, structure

__all__ = ["RECORDED_KINDS"]


class RecordedKind(ResourceKind):
    is_recorded_only = True
    name_property = "Id"
    """an attribute, which no template can choose"""

    def attributes(
        self, name: str, properties: dict[str, Any], destination: Destination
    ) -> dict[str, str]:
        return {"Ref": name, "Id": name}

    def look(self, aws: Aws, name: str, properties: dict[str, Any]) -> ActualState:
        return ActualState(name=name, properties=properties)

    def create(self, aws: Aws, name: str, properties: dict[str, Any]) -> None:
        pass

    def update(
        self, aws: Aws, actual: ActualState, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        pass

    def delete(self, aws: Aws, name: str) -> None:
        pass


class RoleKind(RecordedKind):
    type = "AWS::IAM::Role"
    name_property = "RoleName"
    longest_name = 64
    fixed = frozenset({"RoleName"})
    required = ("AssumeRolePolicyDocument",)
    members: Mapping[str, Read] = {
        "AssumeRolePolicyDocument": JSON,
        "Description": TEXT,
        "ManagedPolicyArns": list_of(TEXT),
        "MaxSessionDuration": WHOLE,
        "Path": TEXT,
        "PermissionsBoundary": TEXT,
        "Policies": list_of(
            structure(
                {"PolicyDocument": JSON, "PolicyName": TEXT}, ("PolicyDocument", "PolicyName")
            )
        ),
        "RoleName": TEXT,
        "Tags": keyed_tags,
    }

    def attributes(
        self, name: str, properties: dict[str, Any], destination: Destination
    ) -> dict[str, str]:
        return {"Ref": name, "Arn": _iam_arn(destination, "role", name, properties)}


class ManagedPolicyKind(RecordedKind):
    type = "AWS::IAM::ManagedPolicy"
    name_property = "ManagedPolicyName"
    longest_name = 128
    fixed = frozenset({"ManagedPolicyName"})
    required = ("PolicyDocument",)
    members: Mapping[str, Read] = {
        "Description": TEXT,
        "Groups": list_of(TEXT),
        "ManagedPolicyName": TEXT,
        "Path": TEXT,
        "PolicyDocument": JSON,
        "Roles": list_of(TEXT),
        "Users": list_of(TEXT),
    }

    def attributes(
        self, name: str, properties: dict[str, Any], destination: Destination
    ) -> dict[str, str]:
        arn = _iam_arn(destination, "policy", name, properties)
        return {"Ref": arn, "PolicyArn": arn}


class PolicyKind(RecordedKind):
    type = "AWS::IAM::Policy"
    required = ("PolicyDocument", "PolicyName")
    members: Mapping[str, Read] = {
        "Groups": list_of(TEXT),
        "PolicyDocument": JSON,
        "PolicyName": TEXT,
        "Roles": list_of(TEXT),
        "Users": list_of(TEXT),
    }


class BucketPolicyKind(RecordedKind):
    type = "AWS::S3::BucketPolicy"
    required = ("Bucket", "PolicyDocument")
    members: Mapping[str, Read] = {"Bucket": TEXT, "PolicyDocument": JSON}


class QueuePolicyKind(RecordedKind):
    type = "AWS::SQS::QueuePolicy"
    required = ("PolicyDocument", "Queues")
    members: Mapping[str, Read] = {"PolicyDocument": JSON, "Queues": list_of(TEXT)}


class TopicPolicyKind(RecordedKind):
    type = "AWS::SNS::TopicPolicy"
    required = ("PolicyDocument", "Topics")
    members: Mapping[str, Read] = {"PolicyDocument": JSON, "Topics": list_of(TEXT)}


def _iam_arn(destination: Destination, noun: str, name: str, properties: Mapping[str, Any]) -> str:
    path = properties.get("Path", "/")
    return f"arn:{destination.partition}:iam::{destination.account_id}:{noun}{path}{name}"


RECORDED_KINDS = (
    BucketPolicyKind(),
    ManagedPolicyKind(),
    PolicyKind(),
    QueuePolicyKind(),
    RoleKind(),
    TopicPolicyKind(),
)
