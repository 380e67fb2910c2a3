"""Asynchronous endpoints on a real server: deployed, called, waited for."""

import json
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.deploy import Deployer
from support.server import eventually

__all__ = ["WISHES", "AsyncBench", "Called"]

WISHES = """
import json, os, signal, time
from pathlib import Path

def model_fn(model_dir): return None
def input_fn(body, content_type): return body

def predict_fn(body, model):
    if not body.startswith(b"{"):
        return body
    wish = json.loads(body)
    if "began" in wish:
        with open(wish["began"], "a") as file:
            file.write(f"{wish.get('number')}\\n")
    while "gate" in wish and not Path(wish["gate"]).exists():
        time.sleep(0.01)
    if "fail" in wish:
        raise ValueError(wish["fail"])
    if "die" in wish and not Path(wish["die"]).exists():
        Path(wish["die"]).touch()
        os.kill(os.getppid(), signal.SIGKILL)
    return json.dumps({"number": wish.get("number")}).encode()

def output_fn(prediction, accept): return prediction, "application/x-answer"
"""
"""What a model does that is asked with JSON: count itself in, wait for a file, fail, die once."""


class Called:
    """One request that got its 202."""

    def __init__(self, bench: "AsyncBench", answer: dict[str, Any]) -> None:
        self._bench = bench
        self.inference_id: str = answer["InferenceId"]
        self.location: str = answer["OutputLocation"]
        self.failure_location: str = answer["FailureLocation"]

    def objects(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """The output and the failure object, as far as they are there; never both."""
        output, failure = self._bench.get(self.location), self._bench.get(self.failure_location)
        assert output is None or failure is None, "there are both objects"
        return output, failure

    @property
    def has_ended(self) -> bool:
        return any(self.objects())

    def output(self, timeout_seconds: float = 120) -> bytes:
        """Of a request that succeeds."""
        eventually(lambda: self.has_ended, timeout_seconds)
        output, failure = self.objects()
        assert output is not None, failure
        body: bytes = output["Body"]
        return body

    def failure(self, timeout_seconds: float = 120) -> str:
        """What the failure object says."""
        eventually(lambda: self.has_ended, timeout_seconds)
        output, failure = self.objects()
        assert failure is not None, output
        return str(failure["Body"].decode())


class AsyncBench:
    """Endpoints of one server, whose notices all come to one queue."""

    def __init__(self, deploy: Deployer) -> None:
        self.deploy = deploy
        self.server = deploy.server
        self.s3 = deploy.s3
        for bucket in ("async-in", "async-out"):
            self.s3.create_bucket(Bucket=bucket)
        self.sqs = self.server.client("sqs")
        sns = self.server.client("sns")
        self.topic: str = sns.create_topic(Name="ended")["TopicArn"]
        self.queue: str = self.sqs.create_queue(QueueName="ended")["QueueUrl"]
        arn = self.sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=["QueueArn"])
        sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=arn["Attributes"]["QueueArn"])
        self._told: dict[str, dict[str, dict[str, Any]]] = {}

    def endpoint(
        self, name: str, script: str = WISHES, concurrency: int = 4, **given: Any
    ) -> dict[str, Any]:
        """An asynchronous endpoint, waited for."""
        self.config(name, script, concurrency, **given)
        self.deploy.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        described = self.deploy.settled(name)
        assert described["EndpointStatus"] == "InService", described
        return described

    def config(
        self, name: str, script: str = WISHES, concurrency: int = 4, **environment: str
    ) -> None:
        """A model and an endpoint config of that name."""
        self.deploy.config(f"{name}-model", script, environment)
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": f"{name}-model",
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
        }
        self.deploy.sagemaker.create_endpoint_config(
            EndpointConfigName=name,
            ProductionVariants=[variant],
            AsyncInferenceConfig={
                "ClientConfig": {"MaxConcurrentInvocationsPerInstance": concurrency},
                "OutputConfig": {
                    "S3OutputPath": "s3://async-out/ok",
                    "S3FailurePath": "s3://async-out/failed/",
                    "NotificationConfig": {
                        "SuccessTopic": self.topic,
                        "ErrorTopic": self.topic,
                        "IncludeInferenceResponseIn": ["SUCCESS_NOTIFICATION_TOPIC"],
                    },
                },
            },
        )

    def put(self, body: bytes) -> str:
        key = str(uuid.uuid4())
        self.s3.put_object(Bucket="async-in", Key=key, Body=body)
        return f"s3://async-in/{key}"

    def call(self, name: str, location: str | None = None, **wish: Any) -> Called:
        """A call with an input that holds the wish; upper-case members are the call's own."""
        given = {key: wish.pop(key) for key in list(wish) if key[0].isupper()}
        location = location or self.put(json.dumps(wish, default=str).encode())
        answer = self.deploy.runtime.invoke_endpoint_async(
            EndpointName=name, InputLocation=location, ContentType="application/x-wish", **given
        )
        return Called(self, answer)

    def get(self, url: str) -> dict[str, Any] | None:
        parts = urlsplit(url)
        try:
            found = self.s3.get_object(Bucket=parts.netloc, Key=parts.path[1:])
        except self.s3.exceptions.NoSuchKey:
            return None
        return {**found, "Body": found["Body"].read()}

    def notices(self, called: Called) -> list[dict[str, Any]]:
        """What was told of a request, once there is something: one for each id of a message."""
        eventually(lambda: bool(self._heard(called)))
        return list(self._heard(called).values())

    def _heard(self, called: Called) -> dict[str, dict[str, Any]]:
        more = True
        while more:
            answer = self.sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10)
            more = bool(answer.get("Messages"))
            for message in answer.get("Messages", []):
                envelope = json.loads(message["Body"])
                told = json.loads(envelope["Message"])
                of = self._told.setdefault(told.get("inferenceId", ""), {})
                of[envelope["MessageId"]] = told
                receipt = message["ReceiptHandle"]
                self.sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=receipt)
        return self._told.get(called.inference_id, {})


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
