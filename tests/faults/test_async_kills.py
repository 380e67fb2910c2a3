"""kill -9 of anything at random while clients enqueue: what was answered with 202 is done once.

`ASYNC_KILL_ROUNDS=200 pytest tests/faults/test_async_kills.py` does it as often as it takes to
believe it; a run of all tests kills one of each.
"""

import contextlib
import itertools
import json
import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from http.client import HTTPException

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from support.plain_http import ask
from support.processes import container_pids
from support.server import eventually

ROUNDS = int(os.environ.get("ASYNC_KILL_ROUNDS", "4"))
SEED = int(os.environ.get("ASYNC_KILL_SEED", "0")) or random.randrange(1, 2**32)
CLIENTS = 10
ROLES = ("control", "gateway", "agent", "instance")
MOST_REQUESTS_AHEAD = 50
"""Of what is answered: a backlog that only grows proves nothing more."""
TIMEOUT_SECONDS = 120
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


class Killer:
    """Kills one process at a time, and waits until another has taken its place."""

    def __init__(self, server, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self.killed: Counter[str] = Counter()
        self._left: list[str] = []
        """Each has its turn, in an order of chance."""

    def kill_one(self) -> None:
        if not self._left:
            self._left = self._chance.sample(ROLES, len(ROLES))
        role = self._left.pop()
        before = self._pids(role)
        if not before:
            return  # An instance that has not come back yet: another round kills something else.
        victim = self._chance.choice(sorted(before))
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        self.killed[role] += 1
        eventually(lambda: bool(self._pids(role) - before), TIMEOUT_SECONDS)

    def _pids(self, role: str) -> set[int]:
        pids = self._server.pids()
        if role != "instance":
            return {pids[role]} if role in pids else set()
        try:
            return set(container_pids(pids["agent"]))
        except KeyError:
            return set()


@pytest.fixture(scope="module")
def sure(make_server, make_deployer):
    """A server with an asynchronous endpoint of two instances; the URL of its notices' queue."""
    server = make_server()
    deployer = make_deployer(server)
    for bucket in ("questions", "results"):
        deployer.s3.create_bucket(Bucket=bucket)
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
                "InitialInstanceCount": 2,
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
    return server, queue


def topic_to(server, queue: str, name: str) -> str:
    sns = server.client("sns")
    topic = sns.create_topic(Name=name)["TopicArn"]
    attributes = server.client("sqs").get_queue_attributes(
        QueueUrl=queue, AttributeNames=["QueueArn"]
    )["Attributes"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=attributes["QueueArn"])
    return str(topic)


@pytest.mark.timeout(max(600, ROUNDS * 20))
def test_what_was_accepted_is_done_once_whatever_is_killed(sure):
    server, queue = sure
    killer = Killer(server, random.Random(SEED))
    started = time.monotonic()
    with Notices(server, queue) as notices:
        with Clients(server) as clients:
            told = clients.told
            clients.ahead = lambda: len(told.accepted) - len(notices.ids)
            for _ in range(ROUNDS):
                enough = len(told.accepted) + 20
                eventually(lambda enough=enough: len(told.accepted) >= enough, TIMEOUT_SECONDS)
                killer.kill_one()
        eventually(lambda: told.accepted.keys() <= notices.ids.keys(), TIMEOUT_SECONDS)
        # What was queued without a 202 ends too, and must not while the objects are counted.
        eventually(lambda: is_drained(server), TIMEOUT_SECONDS)
        written = objects(server)
        eventually(lambda: len(notices.ids) >= len(written), TIMEOUT_SECONDS)
    print(  # noqa: T201
        f"\n{ROUNDS} rounds, seed {SEED}, {time.monotonic() - started:.0f} s: killed "
        f"{dict(killer.killed)}, accepted {len(told.accepted)}, without an answer "
        f"{len(told.unanswered)}"
    )
    wrong = [*wrongs(told, notices, written)]
    assert not wrong, (SEED, wrong[:20])
    assert_nothing_more(told, notices, written)


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
