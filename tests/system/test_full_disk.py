"""A home on a disk that fills up: errors say so, deleting works, and all recovers."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from support.async_bench import AsyncBench
from support.deploy import Deployer
from support.server import Server, eventually, gates_folder

DISK_BYTES = 48 * 2**20


@pytest.fixture(scope="module")
def small():
    """A server whose home lies on a small disk of its own."""
    disk = Path(tempfile.mkdtemp(prefix="sgh-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        disk.rmdir()
        pytest.skip("a disk can be mounted by root only")
    server = Server(disk / "home", {"SAGEHEN_SHARED_FOLDERS": str(gates_folder())})
    try:
        server.start()
        yield server
        server.stop()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
        disk.rmdir()


def put_until_refused(s3) -> None:
    for number in range(DISK_BYTES // 2**20):
        s3.put_object(Bucket="filling", Key=str(number), Body=os.urandom(2**20))


def fill(path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(2**16))


def create_models_until_refused(sagemaker) -> None:
    container = {"Image": "sagehen-python", "Environment": {"A": "x" * 1000}}
    for number in range(5000):
        sagemaker.create_model(ModelName=f"m{number}", PrimaryContainer=container)


def ask_until_refused(runtime) -> None:
    for _ in range(1000):
        runtime.invoke_endpoint_async(EndpointName="patient", Body=b"x" * 100_000)


def test_a_full_disk_is_said_and_survived(small):
    deployer = Deployer(small)
    deployer.endpoint("steady")
    s3 = deployer.s3
    s3.create_bucket(Bucket="filling")
    with pytest.raises(ClientError, match="Remove objects or make room") as full:
        put_until_refused(s3)
    assert full.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert deployer.invoke("steady") == "[2.0, 4.0]"
    kept = [{"Key": one["Key"]} for one in s3.list_objects_v2(Bucket="filling")["Contents"]]
    deleted = s3.delete_objects(Bucket="filling", Delete={"Objects": kept})
    assert len(deleted["Deleted"]) == len(kept)
    assert deployer.endpoint("later")["EndpointStatus"] == "InService"


def test_first_call_of_an_instance_is_answered_on_a_full_disk(small):
    deployer = Deployer(small)
    deployer.endpoint("uncalled")
    filling = small.home.parent / "filling"
    with pytest.raises(OSError, match="No space left"):
        fill(filling)
    try:
        assert deployer.invoke("uncalled") == "[2.0, 4.0]"
    finally:
        filling.unlink()


def test_a_state_without_room_is_said(small):
    deployer = Deployer(small)
    deployer.config("before")
    filler = small.home.parent / "filler"
    with pytest.raises(OSError, match="No space left"):
        fill(filler)
    with pytest.raises(ClientError, match="disk that holds the state is full") as refused:
        create_models_until_refused(deployer.sagemaker)
    assert refused.value.response["Error"]["Code"] == "ServiceUnavailable"
    filler.unlink()
    eventually(lambda: creates_endpoint(deployer, "before"))
    assert deployer.settled("before")["EndpointStatus"] == "InService"
    # Nobody was flooded with the same trouble over and over.
    assert (small.home.parent / "up.log").stat().st_size < 20_000


def test_asynchronous_requests_wait_for_room(small, gates):
    """What was accepted is answered once there is room; what does not fit is refused."""
    bench = AsyncBench(Deployer(small))
    assert bench.endpoint("patient")["EndpointStatus"] == "InService"
    began, gate = gates / "began", gates / "gate"
    accepted = bench.call("patient", number=1, began=began, gate=gate)
    eventually(began.exists)
    filler = small.home.parent / "filler"
    with pytest.raises(OSError, match="No space left"):
        fill(filler)
    with pytest.raises(ClientError, match="disk that holds the state is full") as refused:
        ask_until_refused(bench.deploy.runtime)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    gate.touch()
    assert not accepted.has_ended
    filler.unlink()
    assert json.loads(accepted.output())["number"] == 1


def test_a_job_that_fills_the_disk_fails_and_its_room_comes_back(small):
    deployer = Deployer(small)
    script = 'head -c 100000000 /dev/zero > "$SAGEMAKER_BASE_DIR/output/data/zeros"'
    deployer.training_job("fills", "/bin/sh", "-c", script)
    sagemaker = deployer.sagemaker

    def described():
        return sagemaker.describe_training_job(TrainingJobName="fills")

    eventually(lambda: described()["TrainingJobStatus"] == "Failed")
    assert "has too little room" in described()["FailureReason"]
    deployer.config("after")
    eventually(lambda: not list((small.home / "jobs").iterdir()))


WAITS = """
import time
from pathlib import Path

def model_fn(folder):
    return None

def transform_fn(model, data, content_type, accept):
    folder = Path(data.decode() if isinstance(data, bytes) else data)
    (folder / "began").touch()
    while not (folder / "gate").exists():
        time.sleep(0.01)
    return "x" * 100_000, "text/csv"
"""


def test_a_transform_job_waits_for_room_for_its_outputs(small, gates):
    deployer = Deployer(small)
    sagemaker, s3 = deployer.sagemaker, deployer.s3
    deployer.model("batch", WAITS)
    for bucket in ("batch", "filling"):
        s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket="batch", Key="in/a.csv", Body=f"{gates}\n".encode())
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://batch/in/"}
    sagemaker.create_transform_job(
        TransformJobName="batch",
        ModelName="batch",
        TransformInput={"DataSource": {"S3DataSource": source}, "SplitType": "Line"},
        TransformOutput={"S3OutputPath": "s3://batch/out"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
    )

    def described():
        return sagemaker.describe_transform_job(TransformJobName="batch")

    eventually((gates / "began").exists)
    filler = small.home.parent / "filler"
    with pytest.raises(OSError, match="No space left"):
        fill(filler)
    (gates / "gate").touch()
    with pytest.raises(ClientError, match=r"full|make room"):
        put_until_refused(s3)
    assert described()["TransformJobStatus"] == "InProgress"
    filler.unlink()
    eventually(lambda: described()["TransformJobStatus"] in ("Completed", "Failed"))
    assert described()["TransformJobStatus"] == "Completed", described()
    output = s3.get_object(Bucket="batch", Key="out/a.csv.out")["Body"].read()
    assert output == b"x" * 100_000


def creates_endpoint(deployer, name: str) -> bool:
    try:
        deployer.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    except ClientError:
        return False
    return True
