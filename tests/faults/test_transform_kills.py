"""kill -9 of whatever works on a transform job: its outputs are those of an undisturbed run."""

import json
import os
import signal
import urllib.error

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from support.processes import children_with, container_pids
from support.server import eventually

UPPER = """
import time

def model_fn(folder):
    return None

def transform_fn(model, data, content_type, accept):
    data = data.encode() if isinstance(data, str) else data
    time.sleep(0.1)  # so that each kill finds work under way
    return data.upper(), "text/csv"
"""
RUNNER = "sagehen.app.roles.transform_runner"
COUNT = 60
SMALL = {f"small/{number:03}.csv": f"row {number} a\nrow {number} b\n" for number in range(COUNT)}
LARGE = "".join(f"{number},line of a large object\n" for number in range(80_000))
OBJECTS = {"large.csv": LARGE, **SMALL}


@pytest.fixture(scope="module")
def killed(make_server, make_deployer):
    """A server of this module's own, with inputs and a model."""
    deployer = make_deployer(make_server())
    for bucket in ("kills-in", "kills-out"):
        deployer.s3.create_bucket(Bucket=bucket)
    for key, body in OBJECTS.items():
        deployer.s3.put_object(Bucket="kills-in", Key=f"in/{key}", Body=body)
    deployer.model("upper", UPPER)
    return deployer


def start(deployer, name):
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://kills-in/in/"}
    deployer.sagemaker.create_transform_job(
        TransformJobName=name,
        ModelName="upper",
        BatchStrategy="MultiRecord",
        MaxPayloadInMB=1,
        TransformInput={
            "DataSource": {"S3DataSource": source},
            "ContentType": "text/csv",
            "SplitType": "Line",
        },
        TransformOutput={"S3OutputPath": f"s3://kills-out/{name}", "AssembleWith": "Line"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 2},
    )


def finished(deployer, name):
    """How many objects are; -1 while nobody answers."""
    try:
        return json.loads(deployer.server.get(f"/_sagehen/transform-jobs/{name}"))["objects"]
    except (AssertionError, OSError, urllib.error.URLError):
        return -1


def status(deployer, name):
    try:
        answer = deployer.sagemaker.describe_transform_job(TransformJobName=name)
    except (ClientError, BotoCoreError):
        return None
    return answer["TransformJobStatus"]


def outputs(deployer, name):
    listed = deployer.s3.list_objects_v2(Bucket="kills-out", Prefix=f"{name}/")
    return {
        entry["Key"].removeprefix(f"{name}/"): deployer.s3.get_object(
            Bucket="kills-out", Key=entry["Key"]
        )["Body"].read()
        for entry in listed["Contents"]
    }


def pid_of(deployer, what):
    """None while there is none."""
    pids = deployer.server.pids()
    if what == "runner":
        runners = children_with(RUNNER, of=pids.get("control"))
        return runners[0].pid if runners else None
    if what == "instance":
        return next(iter(container_pids(pids["agent"])), None) if "agent" in pids else None
    return pids.get(what)


def kill(deployer, what):
    found = []

    def is_found():
        pid = pid_of(deployer, what)
        found.append(pid)
        return pid is not None

    eventually(is_found)
    os.kill(found[-1], signal.SIGKILL)


def is_clean(deployer, name):
    """Nothing of the job runs or lies about."""
    control = deployer.server.pids().get("control")
    logs = deployer.server.home / "logs" / "transform-jobs" / name
    ids = {path.name.partition(".")[0] for path in logs.glob("i-*.log")}
    folders = deployer.server.home / "instances"
    return (
        bool(ids)
        and control is not None
        and not children_with(RUNNER, of=control)
        and not any((folders / instance_id).exists() for instance_id in ids)
    )


KILLS = ("runner", "control", "instance", "agent", "runner", "control", "agent", "instance")


def test_whatever_is_killed_the_outputs_are_the_same(killed):
    start(killed, "kills")
    for number, what in enumerate(KILLS, 1):
        share = COUNT * number // (len(KILLS) + 2)
        eventually(lambda least=share: finished(killed, "kills") >= least)
        kill(killed, what)
    eventually(lambda: status(killed, "kills") in ("Completed", "Failed"))
    described = killed.sagemaker.describe_transform_job(TransformJobName="kills")
    assert described["TransformJobStatus"] == "Completed", described
    expected = {f"{key}.out": body.upper().encode() for key, body in OBJECTS.items()}
    assert outputs(killed, "kills") == expected
    assert "Uploads" not in killed.s3.list_multipart_uploads(Bucket="kills-out")
    progress = json.loads(killed.server.get("/_sagehen/transform-jobs/kills"))
    assert (progress["objects"], progress["objects_known"]) == (COUNT + 1, COUNT + 1)
    assert progress["records"] == 2 * COUNT + 80_000
    eventually(lambda: is_clean(killed, "kills"))


@pytest.mark.parametrize("what", ["control", "agent"])
def test_a_job_is_stopped_although_who_has_to_stop_it_dies(killed, what):
    name = f"stopped-{what}"
    start(killed, name)
    eventually(lambda: finished(killed, name) > 0)
    killed.sagemaker.stop_transform_job(TransformJobName=name)
    kill(killed, what)
    eventually(lambda: status(killed, name) == "Stopped")
    count = len(outputs(killed, name))
    eventually(lambda: is_clean(killed, name))
    assert len(outputs(killed, name)) == count < COUNT


def test_a_server_that_was_killed_as_a_whole_goes_on_with_the_job(killed):
    start(killed, "restart")
    eventually(lambda: finished(killed, "restart") > COUNT // 4)
    killed.server.kill()
    killed.server.start()
    eventually(lambda: status(killed, "restart") in ("Completed", "Failed"))
    expected = {f"{key}.out": body.upper().encode() for key, body in OBJECTS.items()}
    assert outputs(killed, "restart") == expected
    eventually(lambda: is_clean(killed, "restart"))
