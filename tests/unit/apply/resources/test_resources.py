"""Types of resources: how properties are read, names and attributes."""

import pytest

from sagehen.apply.client import Destination
from sagehen.apply.plan import Action, live_key, make_plan
from sagehen.apply.resources import KINDS
from sagehen.apply.stack import StackContent, StackResource
from sagehen.apply.template.desired import Desired, content_digits, generated_name
from sagehen.apply.template.reading import Written
from sagehen.base.errors import Invalid
from support.apply_world import World

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
            "#/FilterPolicy: it is no JSON",
        ),
        ("AWS::S3::Bucket", {"Tags": []}, "#: extraneous key [Tags] is not permitted"),
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


def test_a_services_properties_are_its_settings():
    found = read(
        "Sagehen::InferenceService",
        S3Bucket="bucket",
        WhiteList="[model_a, model_b]",
        Limit="2",
        RequireApiKey="false",
        WhenFull="queue",
        Types={"model_a": {"Image": "i", "Hyperparameters": {"k": "v"}}},
    )
    assert found == {
        "S3Bucket": "bucket",
        "WhiteList": ["model_a", "model_b"],
        "Limit": 2,
        "RequireApiKey": False,
        "WhenFull": "queue",
        "Types": {"model_a": {"Image": "i", "Hyperparameters": {"k": "v"}}},
    }


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


def test_generated_names():
    assert generated_name("stack", "Model", "12345678", 63) == "stack-Model-12345678"
    long = generated_name("s" * 128, "L" * 255, "12345678", 63)
    assert len(long) == 63
    assert long.endswith("L-12345678")
    assert generated_name("s" * 128, "L", "12345678", 63).endswith("s-L-12345678")
    for stack in ("a", "b-" * 40, "c" * 100):
        for logical_id in ("X", "Y" * 50, "Z" * 255):
            assert len(generated_name(stack, logical_id, "12345678", 63)) <= 63


def test_a_name_of_content_is_another_one_with_it():
    one = {"PrimaryContainer": {"Image": "a"}, "EnableNetworkIsolation": False}
    assert content_digits(one) == content_digits(dict(reversed(one.items())))
    assert content_digits(one) != content_digits({**one, "EnableNetworkIsolation": True})
    kind = KINDS["AWS::SageMaker::Model"]
    assert kind.identity({**one, "ModelName": "m", "Tags": []}) == one


def test_an_inference_service_whose_settings_are_none_any_more_is_put_again():
    given = {"s3_bucket": "bucket", "types": "no more valid"}

    class Server:
        def own(self, method, *path):
            assert (method, path) == ("GET", ("inference-services", "prod"))
            return {"given": given, "settings": None, "problem": "why", "closing": False}

    service = {
        "logical_id": "Service",
        "type": "Sagehen::InferenceService",
        "name": "prod",
        "properties": {"S3Bucket": "bucket"},
        "attributes": {},
        "needs": (),
        "deletion_policy": "Delete",
    }
    desired = Desired(**service, is_named=True, update_replace_policy="Delete")
    live = desired.kind.look(Server(), "prod", desired.properties)
    content = StackContent(resources={"Service": StackResource(**service)})
    plan = make_plan([desired], content, {live_key(desired): live})
    assert [step.action for step in plan.steps] == [Action.UPDATE]
