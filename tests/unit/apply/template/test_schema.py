"""Properties of resources: read as the schema has them, or refused."""

import pytest

from sagehen.apply.resources import KINDS
from sagehen.apply.template.reading import Written
from sagehen.base.errors import Invalid

VARIANT = {"VariantName": "v", "ModelName": "m"}


def read(kind, **properties):
    return KINDS[kind].read("X", properties)


def test_texts_and_numbers_are_what_the_property_is():
    found = read(
        "AWS::SageMaker::EndpointConfig",
        ProductionVariants=[
            {
                **VARIANT,
                "InitialInstanceCount": "2",
                "InitialVariantWeight": 1,
                "ServerlessConfig": {"MaxConcurrency": 5.0, "MemorySizeInMB": "2048"},
            }
        ],
    )
    (variant,) = found["ProductionVariants"]
    assert variant["InitialInstanceCount"] == 2
    assert isinstance(variant["InitialVariantWeight"], float)
    assert variant["ServerlessConfig"] == {"MaxConcurrency": 5, "MemorySizeInMB": 2048}
    container = {"Image": "i", "Environment": {"A": 1, "B": True, "C": Written("1.10")}}
    model = read("AWS::SageMaker::Model", PrimaryContainer=container, EnableNetworkIsolation="true")
    assert model["PrimaryContainer"]["Environment"] == {"A": "1", "B": "true", "C": "1.10"}
    assert model["EnableNetworkIsolation"] is True
    subscription = read(
        "AWS::SNS::Subscription",
        TopicArn="t",
        Protocol="sqs",
        Endpoint="e",
        RawMessageDelivery="False",
        FilterPolicy={"n": [{"numeric": [">", Written("1.50")]}]},
        RedrivePolicy='{"deadLetterTargetArn": "x"}',
    )
    assert subscription["FilterPolicy"] == {"n": [{"numeric": [">", 1.5]}]}
    assert type(subscription["FilterPolicy"]["n"][0]["numeric"][1]) is float
    assert subscription["RedrivePolicy"] == {"deadLetterTargetArn": "x"}
    assert subscription["RawMessageDelivery"] is False


@pytest.mark.parametrize(
    ("kind", "properties", "why"),
    [
        ("AWS::SageMaker::Model", {"Foo": 1}, "#: extraneous key [Foo] is not permitted"),
        (
            "AWS::SageMaker::Model",
            {"PrimaryContainer": {"Imag": "x"}},
            "#/PrimaryContainer: extraneous key [Imag] is not permitted",
        ),
        (
            "AWS::SageMaker::Model",
            {"PrimaryContainer": {"Mode": "Both"}},
            "#/PrimaryContainer/Mode: Both is not a valid enum value. It is one of MultiModel, Si",
        ),
        ("AWS::SageMaker::Model", {"Tags": [{"Key": "a"}]}, "#/Tags/0: required key [Value]"),
        ("AWS::SageMaker::EndpointConfig", {}, "#: required key [ProductionVariants] not found"),
        (
            "AWS::SageMaker::EndpointConfig",
            {"ProductionVariants": [{**VARIANT, "InitialInstanceCount": "two"}]},
            "#/ProductionVariants/0/InitialInstanceCount: expected type: Integer, found: String",
        ),
        (
            "AWS::SageMaker::EndpointConfig",
            {"ProductionVariants": [{**VARIANT, "InitialInstanceCount": True}]},
            "expected type: Integer, found: Boolean",
        ),
        (
            "AWS::SageMaker::EndpointConfig",
            {"ProductionVariants": VARIANT},
            "expected type: JSONArray, found: JSONObject",
        ),
        ("AWS::SNS::Topic", {"FifoTopic": True}, "#: extraneous key [FifoTopic]"),
        ("AWS::SNS::Topic", {"Subscription": [{"Protocol": "sqs"}]}, "required key [Endpoint]"),
        ("AWS::SNS::Topic", {"DisplayName": None}, "expected type: String, found: Null"),
        (
            "AWS::SNS::Subscription",
            {"TopicArn": "t", "Protocol": "p", "Endpoint": "e", "FilterPolicy": "{"},
            "#/FilterPolicy: it is not JSON",
        ),
        ("AWS::S3::Bucket", {"Foo": []}, "#: extraneous key [Foo] is not permitted"),
        ("AWS::SQS::Queue", {"FifoQueue": True}, "#: extraneous key [FifoQueue]"),
        ("Sagehen::InferenceService", {}, "#: required key [S3Bucket] not found"),
        ("Sagehen::InferenceService", {"S3Bucket": "bucket", "Limit": 0}, "#/Limit: Input should"),
        (
            "Sagehen::InferenceService",
            {"S3Bucket": "bucket", "Profile": "old"},
            "#/Profile: Input should be 'published' or 'modern'",
        ),
        (
            "Sagehen::InferenceService",
            {"S3Bucket": "bucket", "WhiteList": "model_a", "Types": {"model_a": {"Nope": 1}}},
            "#/Types/model_a/Nope: Extra inputs are not permitted",
        ),
        ("Sagehen::InferenceService", {"S3Bucket": "bucket", "Lmit": 1}, "extraneous key [Lmit]"),
    ],
)
def test_properties_that_cannot_be(kind, properties, why):
    with pytest.raises(Invalid) as caught:
        read(kind, **properties)
    said = str(caught.value)
    assert said.startswith(f"Properties validation failed for resource X ({kind}) with message: #")
    assert why in said
