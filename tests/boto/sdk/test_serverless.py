"""Serverless endpoints with the unmodified SageMaker Python SDK, version 2."""

import pytest
from botocore.exceptions import ClientError

from support.deploy import IMAGE, ROLE, Deployer

BUCKET = "sdk-serverless"
# The SDK warns of itself, and of much that it imports.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def session(sdk, aws):
    aws.client("s3").create_bucket(Bucket=BUCKET)
    return sdk.Session(default_bucket=BUCKET)


@pytest.fixture(scope="module")
def model(sdk, aws, session):
    return sdk.model.Model(
        image_uri=IMAGE,
        model_data=Deployer(aws).upload("sdk-serverless/model.tar.gz"),
        role=ROLE,
        predictor_cls=sdk.predictor.Predictor,
        sagemaker_session=session,
    )


@pytest.fixture(scope="module")
def predictor(sdk, session, model):
    # Left to wait by itself, deploy() looks after 30 s first.
    predictor = model.deploy(
        serverless_inference_config=sdk.serverless.ServerlessInferenceConfig(
            memory_size_in_mb=2048, max_concurrency=5, provisioned_concurrency=1
        ),
        serializer=sdk.serializers.JSONSerializer(),
        deserializer=sdk.deserializers.JSONDeserializer(),
        wait=False,
    )
    session.wait_for_endpoint(predictor.endpoint_name, poll=0.1)
    return predictor


def variant_of(aws, predictor):
    described = aws.client("sagemaker").describe_endpoint(EndpointName=predictor.endpoint_name)
    (variant,) = described["ProductionVariants"]
    return variant


def test_a_model_is_deployed_with_a_serverless_config(aws, predictor) -> None:
    assert predictor.predict([1, 2]) == [2.0, 4.0]
    assert variant_of(aws, predictor)["CurrentServerlessConfig"] == {
        "MemorySizeInMB": 2048,
        "MaxConcurrency": 5,
        "ProvisionedConcurrency": 1,
    }


def test_an_update_keeps_the_serverless_config(aws, session, predictor) -> None:
    before = variant_of(aws, predictor)
    predictor.update_endpoint(tags=[{"Key": "of", "Value": "the-update"}], wait=False)
    session.wait_for_endpoint(predictor.endpoint_name, poll=0.1)
    assert (
        variant_of(aws, predictor)["CurrentServerlessConfig"] == (before["CurrentServerlessConfig"])
    )
    assert predictor.predict([3]) == [6.0]


def test_it_becomes_an_endpoint_with_instances_and_not_back(
    sdk, aws, session, model, predictor
) -> None:
    predictor.update_endpoint(initial_instance_count=1, instance_type="ml.m5.large", wait=False)
    session.wait_for_endpoint(predictor.endpoint_name, poll=0.1)
    variant = variant_of(aws, predictor)
    assert (variant["CurrentInstanceCount"], "CurrentServerlessConfig" in variant) == (1, False)
    assert predictor.predict([1, 2]) == [2.0, 4.0]
    with pytest.raises(ClientError, match="ValidationException") as caught:
        model.deploy(
            endpoint_name=predictor.endpoint_name,
            serverless_inference_config=sdk.serverless.ServerlessInferenceConfig(),
            update_endpoint=True,
        )
    assert caught.value.operation_name == "UpdateEndpoint"
    assert predictor.predict([1, 2]) == [2.0, 4.0]
    predictor.delete_endpoint()
