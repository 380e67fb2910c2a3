"""The Async-Inference-Service while control is killed: no slot is given twice, no job is made twice
or lost, each end is told once. With either database.

`INFERENCE_KILLS=50 pytest tests/faults/test_inference_slots.py` does it for longer.
"""

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException

import pytest

from support.plain_http import ask
from support.postgres import running_postgres
from support.server import eventually

LIMIT = 3
KILLS = int(os.environ.get("INFERENCE_KILLS", "1"))
REQUESTS = 6 * (KILLS + 1)
JOB = "while [ ! -e {gate} ]; do sleep 0.05; done; sleep 0.4"
"""Until control was killed for the first time, none ends, so that others ask while it is away."""
TIMEOUT_SECONDS = 120 + 5 * KILLS
AWAY = (HTTPException, OSError, ValueError)


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    return tmp_path_factory.mktemp("gate") / "open"


@pytest.fixture(params=["sqlite", "postgresql"], scope="module")
def server(request, make_server, gate):
    with contextlib.ExitStack() as stack:
        gate.unlink(missing_ok=True)
        job = ["/bin/sh", "-c", JOB.format(gate=gate)]
        more = {}
        if request.param == "postgresql":
            more["database_url"] = stack.enter_context(running_postgres())
        started = make_server(
            images=json.dumps({"model-*": job}),
            inference_service__s3_bucket="results",
            inference_service__white_list="model-a,model-b",
            inference_service__limit=str(LIMIT),
            inference_service__instance_type="ml.m5.large",
            inference_service__require_api_key="false",
            max_running_jobs="8",
            **more,
        )
        yield started
        started.stop()


def post(server, kind, idempotency_key):
    """The status in the body; None where nobody answered."""
    body = json.dumps({"type": kind}).encode()
    headers = {"idempotency-key": idempotency_key}
    with contextlib.suppress(*AWAY):
        return ask(f"{server.url}/dev/inference", body, headers, timeout=120).json["status"]
    return None


def insist(server, number):
    """Ask until there is a slot; how often nobody answered."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    lost = 0
    while (status := post(server, "model-a", f"request-{number}")) != 200:
        assert status in (502, 500, None), status
        lost += status is None
        assert time.monotonic() < deadline
        time.sleep(random.uniform(0.05, 0.3))
    return lost


def kill_control(server, gate):
    """Again and again, each time it has come back and has had a moment to work."""
    for _ in range(KILLS):
        before = server.pids().get("control")
        time.sleep(random.uniform(0.2, 1.0))
        os.kill(server.pid("control"), signal.SIGKILL)
        eventually(lambda before=before: server.pids().get("control", before) != before)
        eventually(lambda: is_ready(server))
        gate.touch()


def is_ready(server):
    try:
        return ask(f"{server.url}/_sagehen/health").status == 200
    except AWAY:
        return False


def ended_jobs(server, kind):
    """All jobs of a type, once all have ended."""
    sagemaker = server.client("sagemaker", retries={"max_attempts": 9})
    listing = sagemaker.get_paginator("list_training_jobs")

    def jobs(**which):
        pages = listing.paginate(NameContains=f"{kind}-job", **which)
        return [job for page in pages for job in page["TrainingJobSummaries"]]

    eventually(lambda: not jobs(StatusEquals="InProgress"), TIMEOUT_SECONDS)
    made = jobs()
    assert {job["TrainingJobStatus"] for job in made} == {"Completed"}
    return made


def notices(server, queue, count):
    """All that the queue was told, once it is as many: they come after the ends of the jobs."""
    sqs = server.client("sqs", retries={"max_attempts": 9})
    told = []

    def nothing_more():
        found = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
        for message in found:
            told.append(json.loads(json.loads(message["Body"])["Message"]))
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        return not found and len(told) >= count

    eventually(nothing_more, TIMEOUT_SECONDS)
    return told


def most_at_once(jobs):
    """Of the jobs' slots: each is held from the creation to the end."""
    changes = [(job["CreationTime"], 1) for job in jobs]
    changes += [(job["TrainingEndTime"], -1) for job in jobs]
    held, most = 0, 0
    for _, change in sorted(changes, key=lambda change: (change[0], change[1])):
        held += change
        most = max(most, held)
    return most


@pytest.mark.timeout(600)
def test_while_control_is_killed_again_and_again(server, gate):
    sqs, sns = server.client("sqs"), server.client("sns")
    queue = sqs.create_queue(QueueName="ends")["QueueUrl"]
    arn = "arn:aws:sqs:us-east-1:000000000000:ends"
    topic = "arn:aws:sns:us-east-1:000000000000:inference-dev"
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)

    with ThreadPoolExecutor(REQUESTS) as pool:
        asking = [pool.submit(insist, server, number) for number in range(REQUESTS)]
        kill_control(server, gate)
        assert sum(one.result() for one in asking), "control was killed while nobody asked"

    made = ended_jobs(server, "model-a")
    assert len(made) == REQUESTS
    assert most_at_once(made) <= LIMIT
    told = Counter(one["eventId"] for one in notices(server, queue, len(made)))
    assert told == {f"{job['TrainingJobName']}:Completed": 1 for job in made}
    assert post(server, "model-a", "afterwards") == 200


def test_a_hundred_at_once(server, gate):
    gate.touch()
    with ThreadPoolExecutor(50) as pool:
        statuses = list(pool.map(lambda number: post(server, "model-b", f"r{number}"), range(100)))
    assert set(statuses) <= {200, 502}
    made = ended_jobs(server, "model-b")
    assert len(made) == statuses.count(200) >= LIMIT
    assert most_at_once(made) <= LIMIT
