"""Small real models, and the few calls that put one behind an endpoint."""

import io
import tarfile
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from support.server import eventually

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagehen-python:1"
ROLE = "arn:aws:iam::000000000000:role/SageMaker"
DOUBLE = """
def model_fn(model_dir):
    return 2.0

def predict_fn(data, model):
    return data * model
"""


def loads_when(gate: Path, factor: float) -> str:
    """The code of a model that is loaded once the file `gate` is there."""
    return f"""
import time
from pathlib import Path

def model_fn(model_dir):
    while not Path({str(gate)!r}).exists():
        time.sleep(0.01)
    return {factor}

def predict_fn(data, model):
    return data * model
"""


def pack(files: dict[str, str]) -> bytes:
    """A model.tar.gz of these texts by name."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, text in files.items():
            data = text.encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return raw.getvalue()


class Deployer:
    """Creates buckets, models, configs and endpoints on one server, by name."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.s3 = server.client("s3")
        self.sagemaker = server.client("sagemaker")
        self.runtime = server.client("sagemaker-runtime")

    def upload(self, key: str, script: str = DOUBLE) -> str:
        self.s3.create_bucket(Bucket="models")
        self.s3.put_object(Bucket="models", Key=key, Body=pack({"code/inference.py": script}))
        return f"s3://models/{key}"

    def model(
        self, name: str, script: str = DOUBLE, environment: dict[str, str] | None = None
    ) -> None:
        """A model of that name."""
        self.sagemaker.create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE,
            PrimaryContainer={
                "Image": IMAGE,
                "ModelDataUrl": self.upload(f"{name}/model.tar.gz", script),
                "Environment": environment or {},
            },
        )

    def config(
        self,
        name: str,
        script: str = DOUBLE,
        environment: dict[str, str] | None = None,
        **variant: Any,
    ) -> None:
        """A model and an endpoint config of that name."""
        self.model(name, script, environment)
        described = {
            "VariantName": "AllTraffic",
            "ModelName": name,
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
            **variant,
        }
        self.sagemaker.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=[described]
        )

    def endpoint(
        self,
        name: str,
        script: str = DOUBLE,
        environment: dict[str, str] | None = None,
        **variant: Any,
    ) -> dict[str, Any]:
        """An endpoint of that name, waited for: its description once it is not `Creating`."""
        self.config(name, script, environment, **variant)
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        return self.settled(name)

    def multi_model(
        self,
        name: str,
        count: int = 1,
        model_cache: bool = True,
        url: str | None = None,
        **environment: str,
    ) -> None:
        """A multi-model endpoint over s3://many/<name>/, or another address, in service."""
        self.s3.create_bucket(Bucket="many")
        container = {
            "Image": IMAGE,
            "ModelDataUrl": url or f"s3://many/{name}/",
            "Mode": "MultiModel",
            "MultiModelConfig": {"ModelCacheSetting": "Enabled" if model_cache else "Disabled"},
            "Environment": environment,
        }
        self.sagemaker.create_model(
            ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container
        )
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": name,
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": count,
        }
        self.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        assert self.settled(name)["EndpointStatus"] == "InService"

    def training_job(self, name: str, *command: str, seconds: int = 60) -> str:
        """Begin a job that runs a program of this machine; its ARN."""
        self.s3.create_bucket(Bucket="jobs")
        created = self.sagemaker.create_training_job(
            TrainingJobName=name,
            AlgorithmSpecification={
                "TrainingImage": "none",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": [*command],
            },
            RoleArn=ROLE,
            OutputDataConfig={"S3OutputPath": "s3://jobs/out"},
            ResourceConfig={
                "InstanceType": "ml.m5.large",
                "InstanceCount": 1,
                "VolumeSizeInGB": 1,
            },
            StoppingCondition={"MaxRuntimeInSeconds": seconds},
        )
        return str(created["TrainingJobArn"])

    def settled(self, name: str) -> dict[str, Any]:
        eventually(lambda: self.status(name) not in ("Creating", "Updating"))
        described: dict[str, Any] = self.sagemaker.describe_endpoint(EndpointName=name)
        return described

    def status(self, name: str) -> str:
        return str(self.sagemaker.describe_endpoint(EndpointName=name)["EndpointStatus"])

    def invoke(self, name: str, body: str = "[1, 2]") -> str:
        answer = self.runtime.invoke_endpoint(
            EndpointName=name, Body=body, ContentType="application/json"
        )
        return str(answer["Body"].read().decode())

    def answers(self, name: str, expected: str, body: str = "[1, 2]") -> bool:
        """Whether it does now: where the routes have not come to yet, it does a moment later."""
        try:
            return self.invoke(name, body) == expected
        except (ClientError, BotoCoreError):
            return False
