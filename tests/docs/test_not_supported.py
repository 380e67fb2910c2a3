"""What the documents call not supported is refused by name, by a real server."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sagehen.wire.services import SERVED, service
from support.server import Server

SCRIPTS = Path(__file__).parents[2] / "scripts"
REFERENCE = runpy.run_path(str(SCRIPTS / "reference.py"))
FEATURES = [
    pytest.param(feature, id=f"{section}-{feature.feature}".replace(" ", "-"))
    for section, features in REFERENCE["UNSUPPORTED"].items()
    for feature in features
]


@pytest.fixture(scope="module")
def prepared(server: Server, deploy: Any) -> Server:
    """What the calls of `UNSUPPORTED` name is there, so that only the feature can be refused."""
    name = "unsupported"
    s3, sagemaker = server.client("s3"), server.client("sagemaker")
    s3.create_bucket(Bucket=name)
    s3.put_object(Bucket=name, Key="key", Body=b"x")
    assert deploy.endpoint(name)["EndpointStatus"] == "InService"
    config = sagemaker.describe_endpoint_config(EndpointConfigName=name)
    sagemaker.create_endpoint_config(
        EndpointConfigName=f"{name}-2", ProductionVariants=config["ProductionVariants"]
    )
    server.client("sns").create_topic(Name=name)
    server.client("sqs").create_queue(QueueName=name)
    server.client("events").put_rule(Name=name, EventPattern='{"source": ["my"]}')
    return server


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_called_not_supported_is_refused_by_name(feature: Any, prepared: Server) -> None:
    client = prepared.client(feature.client, parameter_validation=False)
    with pytest.raises(ClientError) as refused:
        client._make_api_call(feature.operation, given(feature.parameters))
    assert feature.names.lower() in refused.value.response["Error"]["Message"].lower()


def given(value: Any) -> Any:
    """The value without members that are None."""
    if isinstance(value, dict):
        return {name: given(member) for name, member in value.items() if member is not None}
    return [given(member) for member in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", SERVED)
def test_an_operation_called_not_there_is_refused_by_name(name: str, server: Server) -> None:
    model = service(name)
    there = REFERENCE["served_operations"]()[name].keys()
    client = server.client(name, parameter_validation=False, inject_host_prefix=False)
    for operation in sorted(set(model.operation_names) - there):
        shape = model.operation_model(operation).input_shape
        parameters = {
            member: "any"
            for member, its in (shape.members.items() if shape else ())
            if its.serialization.get("location") == "uri"
            or (member in shape.required_members and its.type_name == "string")
        }
        with pytest.raises(ClientError) as refused:
            client._make_api_call(operation, parameters)
        message = refused.value.response["Error"]["Message"]
        assert "mplemented by Sagehen" in message, operation
        # Reads of one and of all differ by a parameter, and older and newer names not at all.
        noun = re.sub(r"^[A-Z][a-z]+", "", operation).removesuffix("s")
        assert noun in message, operation
