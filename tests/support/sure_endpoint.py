"""An asynchronous endpoint under load: each request must be done once, and told once."""

import contextlib
import itertools
import json
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from support.plain_http import ask

__all__ = [
    "Clients",
    "Notices",
    "Told",
    "assert_nothing_more",
    "begin_sure_endpoint",
    "is_drained",
    "objects",
    "topic_to",
    "wrongs",
]

CLIENTS = 10
MOST_REQUESTS_AHEAD = 50
"""Of what is answered: a backlog that only grows proves nothing more."""
LOST = b"Connection reset by peer"
"""What a request says whose instance was lost each time that it was sent."""
SCRIPT = """
import json, time

def model_fn(model_dir): return None

def input_fn(data, content_type): return json.loads(data)

def predict_fn(number, model):
    time.sleep(0.005)
    if number % 10 == 3:
        raise ValueError(f"{number} is refused")
    return {"number": number}

def output_fn(answer, accept): return json.dumps(answer), "application/json"
"""


@dataclass
class Told:
    """What a client was told of each request, by InferenceId."""

    accepted: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The locations of its output and of its failure."""
    unanswered: set[str] = field(default_factory=set)
    """Those that were sent, without a 202."""


class Clients:
    """Threads that enqueue without a pause, from the start of the `with` block to its end."""

    def __init__(self, server) -> None:
        together = {"read_timeout": 60, "max_pool_connections": CLIENTS}
        self._client = server.client("sagemaker-runtime", **together)
        self._s3 = server.client("s3", **together)
        self._numbers = itertools.count()
        self._ending = threading.Event()
        self.told = Told()
        self.ahead = lambda: 0
        self._threads = [threading.Thread(target=self._run) for _ in range(CLIENTS)]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            if self.ahead() > MOST_REQUESTS_AHEAD:
                self._ending.wait(0.05)
                continue
            self._call(next(self._numbers))

    def _call(self, number: int) -> None:
        name = f"n-{number}"
        try:
            given = self._question(number)
            self.told.unanswered.add(name)
            answer = self._client.invoke_endpoint_async(
                EndpointName="sure", InferenceId=name, ContentType="application/json", **given
            )
        except (ClientError, BotoCoreError):
            self._ending.wait(0.02)  # Nobody listens for a moment.
            return
        if answer.get("InferenceId") != name:
            return  # boto3 makes a success of a head whose body was cut off.
        self.told.accepted[name] = (answer["OutputLocation"], answer["FailureLocation"])
        self.told.unanswered.discard(name)

    def _question(self, number: int) -> dict[str, str]:
        """Every fourth lies in the object store."""
        if number % 4:
            return {"Body": json.dumps(number)}
        self._s3.put_object(Bucket="questions", Key=str(number), Body=json.dumps(number))
        return {"InputLocation": f"s3://questions/{number}"}


class Notices(threading.Thread):
    """Reads the queue that both topics are subscribed by, as a consumer does."""

    def __init__(self, server, queue_url: str) -> None:
        super().__init__()
        self._client = server.client("sqs", read_timeout=60)
        self._url = queue_url
        self._ending = threading.Event()
        self.ids: defaultdict[str, set[str]] = defaultdict(set)
        """The MessageIds, by InferenceId."""
        self.statuses: defaultdict[str, set[str]] = defaultdict(set)

    def __enter__(self) -> "Notices":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join()

    def run(self) -> None:
        while not self._ending.is_set():
            try:
                got = self._client.receive_message(
                    QueueUrl=self._url, MaxNumberOfMessages=10, WaitTimeSeconds=1
                ).get("Messages", [])
            except (ClientError, BotoCoreError):
                self._ending.wait(0.05)
                continue
            for message in got:
                self._take(message)

    def _take(self, message) -> None:
        envelope = json.loads(message["Body"])
        notice = json.loads(envelope["Message"])
        if notice["eventName"] != "TestNotification":
            self.ids[notice["inferenceId"]].add(envelope["MessageId"])
            self.statuses[notice["inferenceId"]].add(notice["invocationStatus"])
        with contextlib.suppress(ClientError, BotoCoreError):
            self._client.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])


def begin_sure_endpoint(deployer: Any, instances: int = 2) -> str:
    """Creates the endpoint `sure`, in service; returns the URL of its notices' queue."""
    for bucket in ("questions", "results"):
        deployer.s3.create_bucket(Bucket=bucket)
    server = deployer.server
    queue = server.client("sqs").create_queue(QueueName="notices")["QueueUrl"]
    topics = {name: topic_to(server, queue, name) for name in ("success", "error")}
    deployer.config("model", SCRIPT)
    deployer.sagemaker.create_endpoint_config(
        EndpointConfigName="sure",
        ProductionVariants=[
            {
                "VariantName": "AllTraffic",
                "ModelName": "model",
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": instances,
            }
        ],
        AsyncInferenceConfig={
            "OutputConfig": {
                "S3OutputPath": "s3://results/out",
                "S3FailurePath": "s3://results/failed",
                "NotificationConfig": {
                    "SuccessTopic": topics["success"],
                    "ErrorTopic": topics["error"],
                },
            }
        },
    )
    deployer.sagemaker.create_endpoint(EndpointName="sure", EndpointConfigName="sure")
    assert deployer.settled("sure")["EndpointStatus"] == "InService"
    return str(queue)


def topic_to(server, queue: str, name: str) -> str:
    sns = server.client("sns")
    topic = sns.create_topic(Name=name)["TopicArn"]
    attributes = server.client("sqs").get_queue_attributes(
        QueueUrl=queue, AttributeNames=["QueueArn"]
    )["Attributes"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=attributes["QueueArn"])
    return str(topic)


def is_drained(server) -> bool:
    """Nothing waits and nothing is worked on; not known while the last victim comes back."""
    try:
        answer = ask(f"{server.url}/_sagehen/async/sure", headers=server.bearer)
    except (OSError, HTTPException):
        return False
    queue = answer.json if answer.status == 200 else {}
    return (queue.get("queued"), queue.get("in_process")) == (0, 0)


def wrongs(told: Told, notices: Notices, written: dict[str, bytes]):
    """What is not as it must be, of what was accepted."""
    for name, (output, failure) in told.accepted.items():
        number = int(name.partition("-")[2])
        there = [place for place in (output, failure) if place in written]
        if len(there) != 1:
            yield name, f"has {len(there)} objects"
        elif there == [output] and written[output] != json.dumps({"number": number}).encode():
            yield name, f"has another's answer: {written[output]!r}"
        elif there == [output] and number % 10 == 3:
            yield name, "was refused and has an answer"
        elif there == [failure] and number % 10 != 3 and LOST not in written[failure]:
            yield name, f"failed for another reason: {written[failure]!r}"
        status = "Completed" if there == [output] else "Failed"
        if notices.statuses[name] != {status}:
            yield name, f"has a notice of {notices.statuses[name]}, and is {status}"
        if len(notices.ids[name]) != 1:
            yield name, f"has notices of {len(notices.ids[name])} ids"


def assert_nothing_more(told: Told, notices: Notices, written: dict[str, bytes]) -> None:
    """Without a 202 a request was done not at all, or once."""
    assert notices.ids.keys() <= told.accepted.keys() | told.unanswered
    unknown = [name for name in told.unanswered if len(notices.ids.get(name, ())) > 1]
    assert not unknown
    assert len(written) == len(notices.ids)


def objects(server) -> dict[str, bytes]:
    """All that was written, by address."""
    s3 = server.client("s3")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="results")
    keys = [one["Key"] for page in pages for one in page.get("Contents", [])]
    return {
        f"s3://results/{key}": s3.get_object(Bucket="results", Key=key)["Body"].read()
        for key in keys
    }
