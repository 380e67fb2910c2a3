"""Types of resources: references, attributes and tags."""

import pytest

from sagehen.apply.client import Destination
from sagehen.apply.resources import KINDS, ActualState, comparable
from sagehen.apply.resources.resource import tag_changes
from support.apply_world import World


@pytest.mark.parametrize(
    ("kind", "ref", "attributes"),
    [
        (
            "AWS::SageMaker::Model",
            "arn:aws:sagemaker:eu-west-1:123456789012:model/name",
            {"ModelName": "Name"},
        ),
        (
            "AWS::SageMaker::EndpointConfig",
            "arn:aws:sagemaker:eu-west-1:123456789012:endpoint-config/name",
            {"EndpointConfigName": "Name"},
        ),
        (
            "AWS::SageMaker::Endpoint",
            "arn:aws:sagemaker:eu-west-1:123456789012:endpoint/name",
            {"EndpointName": "Name"},
        ),
        (
            "AWS::SNS::Topic",
            "arn:aws:sns:eu-west-1:123456789012:Name",
            {"TopicName": "Name", "TopicArn": "arn:aws:sns:eu-west-1:123456789012:Name"},
        ),
        (
            "AWS::SQS::Queue",
            "http://127.0.0.1:9000/123456789012/Name",
            {"QueueName": "Name", "Arn": "arn:aws:sqs:eu-west-1:123456789012:Name"},
        ),
        (
            "AWS::S3::Bucket",
            "Name",
            {"Arn": "arn:aws:s3:::Name", "DomainName": "Name.s3.amazonaws.com"},
        ),
        (
            "Sagehen::InferenceService",
            "Name",
            {"Url": "http://127.0.0.1:9000/Name/inference", "Path": "/Name/inference"},
        ),
    ],
)
def test_ref_and_attributes(kind, ref, attributes):
    found = KINDS[kind].attributes("Name", {}, Destination(World()))
    assert found["Ref"] == ref
    assert found.items() >= attributes.items()


def tags(**values):
    return {"Tags": [{"Key": key, "Value": value} for key, value in values.items()]}


def test_only_own_tags_are_changed():
    actual = ActualState(name="n", properties=tags(a="1", b="2", others="x"))
    changed, removed = tag_changes(actual, tags(a="1", b="2", gone="y"), tags(a="other", c="3"))
    assert changed == [{"Key": "a", "Value": "other"}, {"Key": "c", "Value": "3"}]
    assert removed == ["b"]


def test_the_order_of_tags_has_no_meaning():
    assert comparable(tags(a="1", b="2")) == comparable(tags(b="2", a="1"))
    assert comparable({"Name": "n"}) == {"Name": "n"}
