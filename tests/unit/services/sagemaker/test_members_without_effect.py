"""Members that are called without effect are accepted, and shown by Describe where it has them."""

from typing import Any

import pytest

from sagehen.app.api.members import WITHOUT_EFFECT
from sagehen.wire.services import service
from support.fixtures.api import Server, server
from support.fixtures.api_training import request_of
from support.members import insert_member, place_of

__all__ = ["request_of", "server"]

CAPTURE = {
    "EnableCapture": False,
    "InitialSamplingPercentage": 1,
    "DestinationS3Uri": "s3://bucket/capture",
    "CaptureOptions": [{"CaptureMode": "Input"}],
}
ROUTING = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
SOURCE = {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/many/"}


@pytest.fixture
def requests(server: Server, request_of: Any) -> dict[str, dict[str, Any]]:
    """Requests that succeed, by operation."""
    server.config("c", server.variant(ModelName=server.model("m")))
    server.CreateTrainingJob(**request_of("running"))
    model = {
        "S3DataType": "S3Object",
        "CompressionType": "Gzip",
        "S3Uri": "s3://bucket/model.tar.gz",
    }
    image = server.DescribeModel(ModelName="m")["PrimaryContainer"]["Image"]
    return {
        "CreateModel": {
            "ModelName": "new",
            "PrimaryContainer": {"Image": image, "ModelDataSource": {"S3DataSource": model}},
        },
        "CreateEndpointConfig": {
            "EndpointConfigName": "new",
            "ProductionVariants": [server.variant()],
            "AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://bucket/out"}},
            "DataCaptureConfig": CAPTURE,
            "MetricsConfig": {},
        },
        "CreateEndpoint": {
            "EndpointName": "new",
            "EndpointConfigName": "c",
            "DeploymentConfig": {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": ROUTING}},
        },
        "CreateTrainingJob": request_of("new"),
        "UpdateTrainingJob": {"TrainingJobName": "running"},
        "CreateTransformJob": {
            "TransformJobName": "new",
            "ModelName": "m",
            "TransformInput": {"DataSource": {"S3DataSource": SOURCE}},
            "TransformOutput": {"S3OutputPath": "s3://bucket/out"},
            "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
            "DataCaptureConfig": {"DestinationS3Uri": "s3://bucket/capture"},
        },
    }


@pytest.mark.parametrize("listed", WITHOUT_EFFECT["sagemaker"])
def test_a_member_without_effect_is_accepted_and_shown(
    listed: str, server: Server, requests: dict[str, dict[str, Any]]
) -> None:
    operation, path, _ = place_of("sagemaker", listed, requests)
    model = service("sagemaker").operation_model(operation)
    params = requests[operation]
    insert_member(params, model.input_shape, path.split("."))
    getattr(server, operation)(**params)
    noun = operation.removeprefix("Create").removeprefix("Update")
    describe = service("sagemaker").operation_model(f"Describe{noun}")
    if path.split(".")[0].removesuffix("[]") in describe.output_shape.members:
        described = getattr(server, describe.name)(**{f"{noun}Name": params[f"{noun}Name"]})
        assert at(described, path) == at(params, path)


def at(params: Any, path: str) -> Any:
    for part in path.split("."):
        params = params[part.removesuffix("[]")]
        params = params[0] if part.endswith("[]") else params
    return params
