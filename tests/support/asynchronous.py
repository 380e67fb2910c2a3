"""Asynchronous endpoints in tests: created, and asked after at the server's own paths."""

import json
from typing import Any
from urllib.parse import quote

from support import plain_http
from support.deploy import DOUBLE, Deployer
from support.server import Server, eventually

BUCKET = "answers"


class AsyncEndpoint:
    """One asynchronous endpoint with one variant, in service, whose answers go to one bucket."""

    def __init__(
        self,
        deploy: Deployer,
        name: str,
        script: str = DOUBLE,
        environment: dict[str, str] | None = None,
        client: dict[str, int] | None = None,
        **output: Any,
    ) -> None:
        self.deploy = deploy
        self.server: Server = deploy.server
        self.name = name
        self.s3 = deploy.s3
        self.s3.create_bucket(Bucket=BUCKET)
        deploy.model(name, script, environment)
        self.config(name, client or {}, **output)
        deploy.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        self.described = deploy.settled(name)

    def config(self, config_name: str, client: dict[str, int], **output: Any) -> None:
        """An endpoint config for the model; `output` over its usual OutputConfig."""
        self.deploy.sagemaker.create_endpoint_config(
            EndpointConfigName=config_name,
            ProductionVariants=[
                {
                    "VariantName": "AllTraffic",
                    "ModelName": self.name,
                    "InstanceType": "ml.m5.large",
                    "InitialInstanceCount": 1,
                }
            ],
            AsyncInferenceConfig={
                "ClientConfig": client,
                "OutputConfig": {"S3OutputPath": f"s3://{BUCKET}/{self.name}/out", **output},
            },
        )

    def invoke(self, **params: Any) -> dict[str, Any]:
        given = {"EndpointName": self.name, "ContentType": "application/json", **params}
        if "InputLocation" not in given:
            given.setdefault("Body", b"[1, 2]")
        answer: dict[str, Any] = self.deploy.runtime.invoke_endpoint_async(**given)
        return answer

    def scale(self, count: int) -> None:
        self.deploy.sagemaker.update_endpoint_weights_and_capacities(
            EndpointName=self.name,
            DesiredWeightsAndCapacities=[
                {"VariantName": "AllTraffic", "DesiredInstanceCount": count}
            ],
        )
        self.deploy.settled(self.name)

    def ask(self, path: str = "", method: str = "GET", body: Any = None) -> dict[str, Any]:
        """One of the server's own paths about this endpoint."""
        url = f"{self.server.url}/_sagehen/async/{self.name}{path}"
        data = None if body is None else json.dumps(body).encode()
        answer = plain_http.ask(url, data, self.server.bearer, method=method)
        assert answer.status == 200, answer
        return dict(answer.json)

    def request(self, inference_id: str) -> dict[str, Any]:
        """How the newest request of that InferenceId stands."""
        told = self.ask(f"/requests/{quote(inference_id, safe='')}")["requests"]
        return dict(told[0])

    def ended(self, inference_id: str) -> dict[str, Any]:
        """The same, once it has ended."""
        eventually(lambda: self.request(inference_id)["ended_at"] is not None)
        return self.request(inference_id)

    def read(self, location: str) -> bytes:
        """The object at an s3:// address."""
        bucket, _, key = location.removeprefix("s3://").partition("/")
        return bytes(self.s3.get_object(Bucket=bucket, Key=key)["Body"].read())
