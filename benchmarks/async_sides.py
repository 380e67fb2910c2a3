"""Sagehen's asynchronous endpoints, and the queues that they are compared with."""

import hashlib
import math
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path

from async_peers import CONTESTANTS as PEERS
from async_peers import SENDERS, TEXTS, Contestant, Enqueue, Running, Through
from botocore.exceptions import ClientError
from frame import Measured, put_under_load
from postgres_server import postgres
from sides import ROLE, Failed, Server, Side, packed, server

BUCKET = "benchmark"
NAME = "echo"
"""the name of the endpoint, its configuration and its model"""
OUTPUTS = f"s3://{BUCKET}/outputs"
INPUTS = f"s3://{BUCKET}/inputs"
CONCURRENCY = 64
"""MaxConcurrentInvocationsPerInstance."""
SCRIPT = '''
"""A model that does nothing."""


def model_fn(folder):
    return None


def transform_fn(model, body, content_type, accept):
    return body, content_type
'''
LOOK_SECONDS = 0.02
LONGEST_SECONDS = 120


def deploy(running: Server, folder: Path) -> None:
    """An asynchronous endpoint that echoes, in service."""
    s3, sagemaker = running.client("s3"), running.client("sagemaker")
    (folder / "inference.py").write_text(SCRIPT)
    s3.create_bucket(Bucket=BUCKET)
    archive = packed({"code/inference.py": folder / "inference.py"})
    s3.put_object(Bucket=BUCKET, Key="model.tar.gz", Body=archive)
    container = {"Image": "sagehen-python", "ModelDataUrl": f"s3://{BUCKET}/model.tar.gz"}
    sagemaker.create_model(ModelName=NAME, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": NAME,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    sagemaker.create_endpoint_config(
        EndpointConfigName=NAME,
        ProductionVariants=[variant],
        AsyncInferenceConfig={
            "OutputConfig": {"S3OutputPath": OUTPUTS},
            "ClientConfig": {"MaxConcurrentInvocationsPerInstance": CONCURRENCY},
        },
    )
    sagemaker.create_endpoint(EndpointName=NAME, EndpointConfigName=NAME)
    wait_until_in_service(running)


def scale_to_zero(running: Server) -> None:
    """Removes all instances: the endpoint still accepts requests, and processes none."""
    capacity = {"VariantName": "AllTraffic", "DesiredInstanceCount": 0}
    running.client("sagemaker").update_endpoint_weights_and_capacities(
        EndpointName=NAME, DesiredWeightsAndCapacities=[capacity]
    )
    wait_until_in_service(running)


def wait_until_in_service(running: Server) -> None:
    waiter = running.client("sagemaker").get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=NAME, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


def side(running: Server, at_input: bool = False, outputs: str = "") -> Side:
    """InvokeEndpointAsync, with the text inline, or with it at an InputLocation."""

    def request(text: str) -> bytes:
        fields = {"X-Amzn-SageMaker-Content-Type": "text/plain"}
        if outputs:
            fields["X-Amzn-SageMaker-S3OutputPathExtension"] = outputs
        if at_input:
            fields["X-Amzn-SageMaker-InputLocation"] = input_of(text)
        path = f"/endpoints/{NAME}/async-invocations"
        return running.signed(path, fields, "" if at_input else text)

    return Side("Sagehen", *running.address, request)


def input_of(text: str) -> str:
    return f"{INPUTS}/{TEXTS.index(text)}"


@contextmanager
def sagehen(folder: Path, cache: Path, **settings: str) -> Iterator[Running]:
    with server(folder, **settings) as running:
        deploy(running, folder)
        yield Running(partial(working, running), partial(resting, running))


@contextmanager
def sagehen_on_postgres(folder: Path, cache: Path) -> Iterator[Running]:
    with postgres() as url, sagehen(folder, cache, SAGEHEN_DATABASE_URL=url) as running:
        yield running


@contextmanager
def working(running: Server) -> Iterator[dict[str, Through]]:
    for number, text in enumerate(TEXTS):
        key = f"inputs/{number}"
        running.client("s3").put_object(Bucket=BUCKET, Key=key, Body=text.encode())
    yield {
        "inline bodies": partial(go_through, running, False),
        "InputLocation": partial(go_through, running, True),
    }


@contextmanager
def resting(running: Server) -> Iterator[Enqueue]:
    scale_to_zero(running)
    yield partial(put_under_load, side(running), TEXTS)


def go_through(running: Server, at_input: bool, count: int) -> Measured:
    """Measures from the first request until every output is in S3 and correct."""
    outputs, runtime = uuid.uuid4().hex, running.client("sagemaker-runtime")
    sent = list(islice(cycle(TEXTS), count))
    client_side = side(running, at_input, outputs)
    began = put_under_load(client_side, TEXTS, SENDERS, math.inf, count - 1)["began"]
    # The last by itself, as load.py keeps no answers: where its output is, the others are.
    last = runtime.invoke_endpoint_async(
        EndpointName=NAME,
        ContentType="text/plain",
        S3OutputPathExtension=outputs,
        **({"InputLocation": input_of(sent[-1])} if at_input else {"Body": sent[-1].encode()}),
    )
    outputs_found = wait_for_outputs(running, last["OutputLocation"], count)
    elapsed = time.perf_counter() - began
    # An ETag is the MD5 of what was put.
    if outputs_found != Counter(hashlib.md5(text.encode()).hexdigest() for text in sent):
        raise Failed("Sagehen's outputs are not what was sent.")
    return {"requests_per_second": count / elapsed}


def wait_for_outputs(running: Server, last: str, count: int) -> Counter[str]:
    """The ETags, each as often as it is there."""
    s3, deadline = running.client("s3"), time.perf_counter() + LONGEST_SECONDS
    key = last.removeprefix(f"s3://{BUCKET}/")
    pages = s3.get_paginator("list_objects_v2")
    etags: Counter[str] = Counter()
    while time.perf_counter() < deadline:
        # The queue is worked off in order: before the last is done, a listing is only a burden.
        if is_there(s3, key):
            prefix = key.rpartition("/")[0] + "/"
            listed = pages.paginate(Bucket=BUCKET, Prefix=prefix).search("Contents[].ETag")
            etags = Counter(tag.strip('"') for tag in listed)
            if etags.total() >= count:
                return etags
        time.sleep(LOOK_SECONDS)
    raise Failed(f"Sagehen: {etags.total()} of {count} outputs in {LONGEST_SECONDS} s.")


def is_there(s3: object, key: str) -> bool:
    try:
        s3.head_object(Bucket=BUCKET, Key=key)  # type: ignore[attr-defined]
    except ClientError:
        return False
    return True


def ours(key: str, state: str, start: Callable[..., AbstractContextManager[Running]]) -> Contestant:
    durable = f"a commit of {state} before the answer"
    return Contestant(key, f"Sagehen (signed), {state}", "sagehen", "sagehen", durable, start)


CONTESTANTS = (
    ours("sagehen", "SQLite", sagehen),
    ours("sagehen-postgres", "PostgreSQL", sagehen_on_postgres),
    *PEERS,
)
KEYS = tuple(contestant.key for contestant in CONTESTANTS)
