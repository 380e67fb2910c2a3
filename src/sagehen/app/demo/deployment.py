"""The demo's AWS calls."""

import io
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from botocore.config import Config
from numpy.typing import NDArray

from sagehen.app.demo.training import Row
from sagehen.apply.client import session_with

__all__ = ["Clients", "DemoAnswer", "connect", "deploy", "forget", "invoke", "upload"]

BUCKET = "sagehen-demo"
PREFIX = "artifacts/"
NAME_PREFIX = "sagehen-demo-"
# Only the repository's name matters.
IMAGE = "000000000000.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
ROLE = "arn:aws:iam::000000000000:role/sagehen-demo"
INSTANCE_COUNT = 2
_POLL_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 60


@dataclass(frozen=True)
class Clients:
    """The boto3 clients of one server."""

    s3: Any
    sagemaker: Any
    runtime: Any
    name: str
    """new each run, so that earlier counts do not interfere"""


@dataclass(frozen=True)
class DemoAnswer:
    """Predictions, and the client's waiting time."""

    predictions: NDArray[np.float32]
    milliseconds: float


def connect(endpoint_url: str, access_key: str, secret: str, region: str) -> Clients:
    session = session_with(access_key, secret)
    # The server is local, so use no proxy; retries would hide faults.
    config = Config(proxies={}, retries={"total_max_attempts": 1})

    def client(service: str) -> Any:
        return session.client(service, region, endpoint_url=endpoint_url, config=config)

    return Clients(
        s3=client("s3"),
        sagemaker=client("sagemaker"),
        runtime=client("sagemaker-runtime"),
        name=NAME_PREFIX + time.strftime("%H%M%S"),
    )


def forget(clients: Clients) -> None:
    """Deletes what earlier demos left."""
    sagemaker = clients.sagemaker
    listed = sagemaker.list_endpoints(NameContains=NAME_PREFIX, MaxResults=100)["Endpoints"]
    for endpoint in _of_demos(listed, "EndpointName"):
        if endpoint["EndpointStatus"] in ("InService", "Failed"):
            sagemaker.delete_endpoint(EndpointName=endpoint["EndpointName"])
    listed = sagemaker.list_endpoint_configs(NameContains=NAME_PREFIX)["EndpointConfigs"]
    for config in _of_demos(listed, "EndpointConfigName"):
        sagemaker.delete_endpoint_config(EndpointConfigName=config["EndpointConfigName"])
    for model in _of_demos(sagemaker.list_models(NameContains=NAME_PREFIX)["Models"], "ModelName"):
        sagemaker.delete_model(ModelName=model["ModelName"])
    _make_bucket(clients.s3)
    for page in clients.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=PREFIX):
        for entry in page.get("Contents", []):
            clients.s3.delete_object(Bucket=BUCKET, Key=entry["Key"])


def _of_demos(listed: list[dict[str, Any]], name_member: str) -> list[dict[str, Any]]:
    # User resources may have the prefix elsewhere in the name.
    return [resource for resource in listed if resource[name_member].startswith(NAME_PREFIX)]


def _make_bucket(s3: Any) -> None:
    region = s3.meta.region_name
    elsewhere = {"CreateBucketConfiguration": {"LocationConstraint": region}}
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        # us-east-1 takes no constraint.
        s3.create_bucket(Bucket=BUCKET, **({} if region == "us-east-1" else elsewhere))


def upload(clients: Clients, target: str, archive: bytes) -> None:
    """Uploads a model, which can be invoked at once."""
    clients.s3.upload_fileobj(io.BytesIO(archive), BUCKET, PREFIX + target)


def deploy(clients: Clients) -> float:
    """Creates the endpoint; returns the seconds until it is in service.

    Raises RuntimeError if it fails or takes over a minute.
    """
    container = {
        "Image": IMAGE,
        "ModelDataUrl": f"s3://{BUCKET}/{PREFIX}",
        "Mode": "MultiModel",
    }
    clients.sagemaker.create_model(
        ModelName=clients.name, ExecutionRoleArn=ROLE, Containers=[container]
    )
    clients.sagemaker.create_endpoint_config(
        EndpointConfigName=clients.name,
        ProductionVariants=[
            {
                "InstanceType": "ml.m4.xlarge",
                "InitialInstanceCount": INSTANCE_COUNT,
                "InitialVariantWeight": 1,
                "ModelName": clients.name,
                "VariantName": "AllTraffic",
            }
        ],
    )
    started = time.perf_counter()
    clients.sagemaker.create_endpoint(EndpointName=clients.name, EndpointConfigName=clients.name)
    _wait_until_in_service(clients)
    return time.perf_counter() - started


def _wait_until_in_service(clients: Clients) -> None:
    # boto3's waiter polls only every 30 s.
    deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
    while time.monotonic() < deadline:
        endpoint = clients.sagemaker.describe_endpoint(EndpointName=clients.name)
        if endpoint["EndpointStatus"] == "InService":
            return
        if endpoint["EndpointStatus"] != "Creating":
            reason = endpoint.get("FailureReason", "no reason was given")
            raise RuntimeError(f"The endpoint is {endpoint['EndpointStatus']}: {reason}")
        time.sleep(_POLL_SECONDS)
    raise RuntimeError(f"The endpoint is not in service after {_LONGEST_WAIT_SECONDS} s.")


def invoke(clients: Clients, target: str, rows: Sequence[Row]) -> DemoAnswer:
    body = "\n".join(",".join(map(str, row)) for row in rows)
    started = time.perf_counter()
    response = clients.runtime.invoke_endpoint(
        EndpointName=clients.name, ContentType="text/csv", TargetModel=target, Body=body
    )
    content = response["Body"].read()
    milliseconds = (time.perf_counter() - started) * 1000
    return DemoAnswer(np.array(json.loads(content), np.float32), milliseconds)
