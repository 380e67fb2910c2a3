"""Training jobs that run images."""

import io
import json
import tarfile
from typing import Any

from support.deploy import ROLE, Deployer
from support.server import eventually

__all__ = ["ImageJobs"]


class ImageJobs:
    """Runs the program `train` over three numbers."""

    def __init__(self, deploy: Deployer) -> None:
        self.deploy = deploy
        deploy.s3.create_bucket(Bucket="jobs")
        deploy.s3.put_object(Bucket="jobs", Key="in/a.txt", Body=b"1\n2\n")
        deploy.s3.put_object(Bucket="jobs", Key="in/b.txt", Body=b"4\n")

    def start(
        self,
        name: str,
        count: int = 1,
        isolated: bool = False,
        algorithm: dict[str, Any] | None = None,
        **hyperparameters: str,
    ) -> None:
        self.deploy.sagemaker.create_training_job(
            TrainingJobName=name,
            AlgorithmSpecification={
                "TrainingImage": "mine:1",
                "TrainingInputMode": "File",
                "MetricDefinitions": [{"Name": "sum", "Regex": "sum=([0-9.]+);"}],
                **(algorithm or {}),
            },
            HyperParameters=hyperparameters,
            InputDataConfig=[
                {
                    "ChannelName": "numbers",
                    "DataSource": {
                        "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://jobs/in/"}
                    },
                }
            ],
            CheckpointConfig={"S3Uri": f"s3://jobs/checkpoints/{name}"},
            RoleArn=ROLE,
            OutputDataConfig={"S3OutputPath": "s3://jobs/out"},
            ResourceConfig={
                "InstanceType": "ml.m5.large",
                "InstanceCount": count,
                "VolumeSizeInGB": 1,
            },
            StoppingCondition={"MaxRuntimeInSeconds": 120},
            EnableNetworkIsolation=isolated,
        )

    def ended(self, name: str) -> dict[str, Any]:
        eventually(
            lambda: self.describe(name)["TrainingJobStatus"] not in ("InProgress", "Stopping")
        )
        return self.describe(name)

    def describe(self, name: str) -> dict[str, Any]:
        described: dict[str, Any] = self.deploy.sagemaker.describe_training_job(
            TrainingJobName=name
        )
        return described

    def about(self, name: str) -> dict[str, Any]:
        about: dict[str, Any] = json.loads(self.output(name, "about.json"))
        return about

    def output(self, name: str, member: str) -> bytes:
        key = f"out/{name}/output/model.tar.gz"
        data = self.deploy.s3.get_object(Bucket="jobs", Key=key)["Body"].read()
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            file = archive.extractfile(member)
            assert file is not None, member
            return file.read()
