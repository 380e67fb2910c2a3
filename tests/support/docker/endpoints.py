"""Endpoints that run images."""

from pathlib import Path
from typing import Any

from support.deploy import ROLE, Deployer, pack

__all__ = ["CAPABILITY", "ImageEndpoints", "containers_of"]

CAPABILITY = "com.amazonaws.sagemaker.capabilities"


class ImageEndpoints:
    """Deploys images with a model that multiplies."""

    def __init__(self, deploy: Deployer) -> None:
        self.deploy = deploy
        self.deploy.s3.create_bucket(Bucket="models")

    def container(self, image: str, factor: float = 2.0, **members: Any) -> dict[str, Any]:
        key = f"factor-{factor}.tar.gz"
        self.deploy.s3.put_object(Bucket="models", Key=key, Body=pack({"factor": str(factor)}))
        return {"Image": image, "ModelDataUrl": f"s3://models/{key}", **members}

    def scripted(self, image: str, script: Path, **members: Any) -> dict[str, Any]:
        """A container whose model is code: its `run` gets the JSON objects that are sent."""
        key = f"{script.stem}.tar.gz"
        body = pack({"script.py": script.read_text(), "factor": "1"})
        self.deploy.s3.put_object(Bucket="models", Key=key, Body=body)
        return {"Image": image, "ModelDataUrl": f"s3://models/{key}", **members}

    def create(self, name: str, *containers: dict[str, Any], **config: Any) -> dict[str, Any]:
        """Returns the endpoint's description when it is created, or failed."""
        self.begin(name, *containers, **config)
        described: dict[str, Any] = self.deploy.settled(name)
        return described

    def begin(
        self,
        name: str,
        *containers: dict[str, Any],
        count: int = 1,
        isolated: bool = False,
        **config: Any,
    ) -> None:
        sagemaker = self.deploy.sagemaker
        one = {"PrimaryContainer": containers[0]}
        sagemaker.create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE,
            EnableNetworkIsolation=isolated,
            **(one if len(containers) == 1 else {"Containers": list(containers)}),
        )
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": name,
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": count,
        }
        sagemaker.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=[variant], **config
        )
        sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)

    def fails(self, name: str, *containers: dict[str, Any], **members: Any) -> str:
        """Returns the FailureReason."""
        described = self.create(name, *containers, **members)
        assert described["EndpointStatus"] == "Failed", described
        return str(described["FailureReason"])

    def invoke(self, name: str, body: bytes, **params: Any) -> str:
        answer = self.deploy.runtime.invoke_endpoint(EndpointName=name, Body=body, **params)
        return str(answer["Body"].read().decode())

    def delete(self, name: str) -> None:
        self.deploy.sagemaker.delete_endpoint(EndpointName=name)


def containers_of(engine: Any, endpoint: str) -> list[Any]:
    filters = {"label": f"sagehen.endpoint={endpoint}"}
    # Some may be removed while they are listed.
    return list(engine.containers.list(filters=filters, ignore_removed=True))
