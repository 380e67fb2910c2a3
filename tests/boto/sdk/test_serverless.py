"""Serverless endpoints with the unmodified SageMaker Python SDK, version 2."""

import pytest

from support.deploy import IMAGE, ROLE, Deployer

BUCKET = "sdk-serverless"
# The SDK warns of itself, and of much that it imports.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_model_is_deployed_with_a_serverless_config(sdk, aws) -> None:
    session = sdk.Session(default_bucket=BUCKET)
    aws.client("s3").create_bucket(Bucket=BUCKET)
    model = sdk.model.Model(
        image_uri=IMAGE,
        model_data=Deployer(aws).upload("sdk-serverless/model.tar.gz"),
        role=ROLE,
        predictor_cls=sdk.predictor.Predictor,
        sagemaker_session=session,
    )
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
    assert predictor.predict([1, 2]) == [2.0, 4.0]
    described = aws.client("sagemaker").describe_endpoint(EndpointName=predictor.endpoint_name)
    (variant,) = described["ProductionVariants"]
    assert variant["CurrentServerlessConfig"] == {
        "MemorySizeInMB": 2048,
        "MaxConcurrency": 5,
        "ProvisionedConcurrency": 1,
    }
    predictor.delete_endpoint()
