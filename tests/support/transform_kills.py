"""A transform job on a server whose processes are killed."""

import json
import os
import signal
import urllib.error
from collections.abc import Mapping

from botocore.exceptions import BotoCoreError, ClientError

from support.deploy import Deployer
from support.processes import children_with, container_pids
from support.server import eventually

__all__ = ["finished", "is_clean", "kill", "outputs", "pid_of", "prepare", "start", "status"]

UPPER = """
import time

def model_fn(folder):
    return None

def transform_fn(model, data, content_type, accept):
    data = data.encode() if isinstance(data, str) else data
    time.sleep(0.1)  # so that each kill finds work under way
    return data.upper(), "text/csv"
"""
RUNNER = "sagehen.app.roles.transform_runner"


def prepare(deployer: Deployer, objects: Mapping[str, str]) -> None:
    """Makes the inputs and the model."""
    for bucket in ("kills-in", "kills-out"):
        deployer.s3.create_bucket(Bucket=bucket)
    for key, body in objects.items():
        deployer.s3.put_object(Bucket="kills-in", Key=f"in/{key}", Body=body.encode())
    deployer.model("upper", UPPER)


def start(deployer: Deployer, name: str) -> None:
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://kills-in/in/"}
    deployer.sagemaker.create_transform_job(
        TransformJobName=name,
        ModelName="upper",
        BatchStrategy="MultiRecord",
        MaxPayloadInMB=1,
        TransformInput={
            "DataSource": {"S3DataSource": source},
            "ContentType": "text/csv",
            "SplitType": "Line",
        },
        TransformOutput={"S3OutputPath": f"s3://kills-out/{name}", "AssembleWith": "Line"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 2},
    )


def finished(deployer: Deployer, name: str) -> int:
    """How many objects are; -1 while nobody answers."""
    try:
        return json.loads(deployer.server.get(f"/_sagehen/transform-jobs/{name}"))["objects"]
    except (AssertionError, OSError, urllib.error.URLError):
        return -1


def status(deployer: Deployer, name: str) -> str | None:
    try:
        answer = deployer.sagemaker.describe_transform_job(TransformJobName=name)
    except (ClientError, BotoCoreError):
        return None
    return answer["TransformJobStatus"]


def outputs(deployer: Deployer, name: str) -> dict[str, bytes]:
    pages = deployer.s3.get_paginator("list_objects_v2").paginate(
        Bucket="kills-out", Prefix=f"{name}/"
    )
    return {
        entry["Key"].removeprefix(f"{name}/"): deployer.s3.get_object(
            Bucket="kills-out", Key=entry["Key"]
        )["Body"].read()
        for page in pages
        for entry in page.get("Contents", [])
    }


def pid_of(deployer: Deployer, what: str) -> int | None:
    """None while there is none."""
    pids = deployer.server.pids()
    if what == "runner":
        runners = children_with(RUNNER, of=pids.get("control"))
        return runners[0].pid if runners else None
    if what == "instance":
        return next(iter(container_pids(pids["agent"])), None) if "agent" in pids else None
    return pids.get(what)


def kill(deployer: Deployer, what: str) -> None:
    def is_killed() -> bool:
        pid = pid_of(deployer, what)
        if pid is None:
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # It ended with its agent, which was killed before.
            return False
        return True

    eventually(is_killed)


def is_clean(deployer: Deployer, name: str) -> bool:
    """Nothing of the job runs or lies about."""
    control = deployer.server.pids().get("control")
    logs = deployer.server.home / "logs" / "transform-jobs" / name
    ids = {path.name.partition(".")[0] for path in logs.glob("i-*.log")}
    folders = deployer.server.home / "instances"
    return (
        bool(ids)
        and control is not None
        and not children_with(RUNNER, of=control)
        and not any((folders / instance_id).exists() for instance_id in ids)
    )
