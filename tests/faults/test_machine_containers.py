"""Asynchronous endpoints and transform jobs whose containers are on other machines.

No machine can open another's sockets, ports of containers or files.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from support.cluster import ROOM, nodes_of
from support.deploy import IMAGE, ROLE, Deployer
from support.machines import machines_network, shared_stores

UPPER = """
import time

def model_fn(folder):
    return None

def transform_fn(model, data, content_type, accept):
    data = data.encode() if isinstance(data, str) else data
    time.sleep({delay})
    return data.upper(), "text/csv"
"""
IMAGES = {"upper": [sys.executable, str(Path(__file__).with_name("upper_container.py"))]}
KINDS = ("link", "http")
DELAY = 0.2
LARGE_BYTES = 100 * 10**6
REQUESTS = 40
ROWS = 400


@pytest.fixture(scope="module")
def trio():
    """Three servers of a cluster; the first, which began it, leads."""
    with machines_network() as network, shared_stores() as stores:
        machines = [network.machine(number) for number in (1, 2, 3)]
        for each in machines:
            each.configure(cluster="state", host=each.address, **ROOM, **stores)
        first, *others = machines
        first.up(SAGEHEN_IMAGES=json.dumps(IMAGES))
        token = first.run("sagehen", "cluster", "token").strip()
        for each in others:
            each.up(wait=False, SAGEHEN_CLUSTER_TOKEN=token, SAGEHEN_IMAGES=json.dumps(IMAGES))
        for each in others:
            each.wait_until_up()
        yield machines


@pytest.fixture
def all_on(trio, wait_until):
    """The three machines, of which a test may turn any but the first off."""
    first, *others = trio
    off = [each for each in others if each._init is None]
    for each in off:
        each.boot()
        each.up(wait=False, SAGEHEN_IMAGES=json.dumps(IMAGES))
    for each in off:
        each.wait_until_up()
    wait_until(lambda: sum(bool(node["pids"]) for node in nodes(first).values()) == 3)
    return trio


def nodes(machine):
    """What `sagehen cluster status` shows there, by the id of the node."""
    return nodes_of(machine.run("sagehen", "cluster", "status", "--json"))


def spread(machine):
    """How many instances each machine runs."""
    return {key.rpartition("-")[0]: len(node["instances"]) for key, node in nodes(machine).items()}


def node_id(machine):
    (found,) = [key for key in nodes(machine) if key.startswith(f"{machine.name}-")]
    return found


def make_model(deploy, name, kind, delay):
    """A model in our model server, or in a container over HTTP."""
    container = {"Image": "upper", "Environment": {"DELAY": str(delay)}}
    if kind == "link":
        url = deploy.upload(f"{name}/model.tar.gz", UPPER.format(delay=delay))
        variables = {"TS_MAX_REQUEST_SIZE": str(2 * LARGE_BYTES)}
        variables["TS_MAX_RESPONSE_SIZE"] = str(2 * LARGE_BYTES)
        container = {"Image": IMAGE, "ModelDataUrl": url, "Environment": variables}
    deploy.sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)


def make_async_endpoint(deploy, name, kind, count):
    """Returns its client of notices, and the queue to which they go."""
    make_model(deploy, name, kind, DELAY)
    sns, sqs = (deploy.server.client(service) for service in ("sns", "sqs"))
    topic = sns.create_topic(Name=name)["TopicArn"]
    queue = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
    arn = arn["Attributes"]["QueueArn"]
    raw = {"RawMessageDelivery": "true"}
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes=raw)
    deploy.s3.create_bucket(Bucket="async")
    deploy.sagemaker.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[
            {
                "VariantName": "AllTraffic",
                "ModelName": name,
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": count,
            }
        ],
        AsyncInferenceConfig={
            "OutputConfig": {
                "S3OutputPath": f"s3://async/{name}/out",
                "NotificationConfig": {"SuccessTopic": topic, "ErrorTopic": topic},
            }
        },
    )
    deploy.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    described = deploy.settled(name)
    assert described["EndpointStatus"] == "InService", described
    return sqs, queue


class Notices:
    """The notices of an endpoint's requests, by InferenceId."""

    def __init__(self, sqs, queue):
        self._sqs, self._queue = sqs, queue
        self.received = []

    def look(self):
        told = self._sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10)
        for message in told.get("Messages", ()):
            self.received.append(json.loads(message["Body"]))
            self._sqs.delete_message(QueueUrl=self._queue, ReceiptHandle=message["ReceiptHandle"])
        return len(self.received)


@pytest.mark.parametrize("kind", KINDS)
def test_asynchronous_requests_survive_a_machine_that_loses_power(all_on, wait_until, kind):
    first, *others = all_on
    deploy = Deployer(first)
    name = f"async-{kind}"
    first.run("sagehen", "cluster", "drain", node_id(first))
    try:
        notices = Notices(*make_async_endpoint(deploy, name, kind, count=2))
        there = spread(first)
        assert not there["machine-1"]
        assert sum(there.values()) == 2

        def invoke(key, body):
            deploy.s3.put_object(Bucket="async", Key=key, Body=body)
            return deploy.runtime.invoke_endpoint_async(
                EndpointName=name,
                InputLocation=f"s3://async/{key}",
                InferenceId=key,
                ContentType="text/csv",
            )["OutputLocation"]

        def read(location):
            bucket, _, key = location.removeprefix("s3://").partition("/")
            return deploy.s3.get_object(Bucket=bucket, Key=key)["Body"].read()

        large = os.urandom(LARGE_BYTES // 2).hex().encode()
        location = invoke("large", large)
        wait_until(lambda: notices.look() == 1)
        assert notices.received[0]["invocationStatus"] == "Completed", notices.received
        assert read(location) == large.upper()

        sent = {f"r-{number}": f"row {number}".encode() for number in range(REQUESTS)}
        locations = {key: invoke(key, body) for key, body in sent.items()}
        wait_until(lambda: notices.look() > 3)
        next(each for each in others if spread(first)[each.name]).power_off()
        wait_until(lambda: notices.look() >= 1 + REQUESTS, 300)
        ended = {notice["inferenceId"]: notice["invocationStatus"] for notice in notices.received}
        assert ended == dict.fromkeys(["large", *sent], "Completed")
        assert len(notices.received) == len(ended), "each has one notice"
        assert {key: read(location) for key, location in locations.items()} == {
            key: body.upper() for key, body in sent.items()
        }
        deploy.sagemaker.delete_endpoint(EndpointName=name)
        wait_until(lambda: not any(spread(first).values()))
    finally:
        first.run("sagehen", "cluster", "drain", node_id(first), "--undo")


def start_transform(deploy, name, kind, **more):
    make_model(deploy, name, kind, DELAY)
    deploy.sagemaker.create_transform_job(
        TransformJobName=name,
        ModelName=name,
        TransformInput={
            "DataSource": {
                "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://batch/{name}/"}
            },
            "ContentType": "text/csv",
            "SplitType": "Line" if more.get("BatchStrategy") else "None",
        },
        TransformOutput={
            "S3OutputPath": f"s3://batch-out/{name}",
            **({"AssembleWith": "Line"} if more.get("BatchStrategy") else {}),
        },
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 3},
        **more,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_transform_job_uses_all_machines_and_survives_the_loss_of_one(all_on, wait_until, kind):
    first, second, _ = all_on
    deploy = Deployer(first)
    name = f"transform-{kind}"
    for bucket in ("batch", "batch-out"):
        deploy.s3.create_bucket(Bucket=bucket)
    rows = {
        f"{part}.csv": b"".join(b"row %d of %d\n" % (row, part) for row in range(ROWS))
        for part in range(3)
    }
    for key, body in rows.items():
        deploy.s3.put_object(Bucket="batch", Key=f"{name}/{key}", Body=body)

    def status():
        return deploy.sagemaker.describe_transform_job(TransformJobName=name)

    start_transform(deploy, name, kind, BatchStrategy="SingleRecord", MaxConcurrentTransforms=4)
    wait_until(lambda: sum(spread(first).values()) == 3)
    wait_until(lambda: progress(first, name)["records"] > 60)
    assert spread(first)[second.name], "it works on the job"
    second.power_off()
    assert progress(first, name)["records"] < 3 * ROWS, "the job is under way"
    wait_until(lambda: status()["TransformJobStatus"] not in ("InProgress", "Stopping"), 300)
    assert status()["TransformJobStatus"] == "Completed", status()
    for key, body in rows.items():
        got = deploy.s3.get_object(Bucket="batch-out", Key=f"{name}/{key}.out")["Body"].read()
        assert got == body.upper()
    wait_until(lambda: not any(spread(first).values()))


def progress(machine, name):
    told = machine.run(
        sys.executable,
        "-c",
        "import sys, urllib.request as r; q = r.Request(sys.argv[1], headers={'Authorization': "
        "sys.argv[2]}); print(r.urlopen(q).read().decode())",
        f"{machine.url}/_sagehen/transform-jobs/{name}",
        machine.bearer["Authorization"],
    )
    return json.loads(told)


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_object_goes_through_a_transform_job(all_on, wait_until, kind):
    deploy = Deployer(all_on[0])
    name = f"large-{kind}"
    for bucket in ("batch", "batch-out"):
        deploy.s3.create_bucket(Bucket=bucket)
    large = os.urandom(48 * 10**6).hex().encode()
    keys = [f"{number}.bin" for number in range(3)]
    for key in keys:
        deploy.s3.put_object(Bucket="batch", Key=f"{name}/{key}", Body=large)
    start_transform(deploy, name, kind, MaxPayloadInMB=100)

    def status():
        return deploy.sagemaker.describe_transform_job(TransformJobName=name)

    wait_until(lambda: status()["TransformJobStatus"] not in ("InProgress", "Stopping"), 300)
    assert status()["TransformJobStatus"] == "Completed", status()
    for key in keys:
        got = deploy.s3.get_object(Bucket="batch-out", Key=f"{name}/{key}.out")["Body"].read()
        assert got == large.upper()
