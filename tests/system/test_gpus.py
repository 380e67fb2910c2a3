"""GPUs are handed out, counted, shared and handed back: a machine with two, by a stand-in for the
driver's tool. test_gpu_card.py has a real one."""

import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from support.cli import run_command
from support.deploy import ROLE, Deployer
from support.nvidia_smi import describe_gpu, install_nvidia_smi
from support.server import Server, eventually

G5 = "ml.g5.xlarge"
REPORTS = """
import json, os

def model_fn(folder, context):
    # In one write: those of print, unbuffered, mix with the other worker's.
    os.write(1, f"this worker has GPU {context.system_properties['gpu_id']}\\n".encode())

def transform_fn(model, data, content_type, accept):
    names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TF_FORCE_GPU_ALLOW_GROWTH",
             "XLA_PYTHON_CLIENT_MEM_FRACTION")
    return json.dumps({name: os.environ.get(name) for name in names}), "application/json"
"""
ONE_WORKER = {"SAGEMAKER_MODEL_SERVER_WORKERS": "1"}


@pytest.fixture(scope="module")
def deploy() -> Iterator[Deployer]:
    """A server on a machine with two GPUs."""
    folder = Path(tempfile.mkdtemp(prefix="sgh-"))
    (folder / "bin").mkdir()
    install_nvidia_smi(folder / "bin", [describe_gpu(0), describe_gpu(1)])
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    server = Server(folder / "home", {"PATH": path})
    server.start()
    yield Deployer(server)
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def created(deploy: Deployer) -> Iterator[Any]:
    """`created(name, …)`: an endpoint, waited for; all endpoints are deleted in the end."""

    def create(name: str, instance_type: str = G5, count: int = 1, **variables: str) -> Any:
        return deploy.endpoint(
            name,
            REPORTS,
            ONE_WORKER | variables,
            InstanceType=instance_type,
            InitialInstanceCount=count,
        )

    yield create
    for endpoint in deploy.sagemaker.list_endpoints()["Endpoints"]:
        if endpoint["EndpointStatus"] != "Deleting":
            deploy.sagemaker.delete_endpoint(EndpointName=endpoint["EndpointName"])
    eventually(lambda: free_shares(deploy) == {"0": 1, "1": 1})


def reported(deploy: Deployer, name: str) -> dict[str, str]:
    told: dict[str, str] = json.loads(deploy.invoke(name))
    return told


def status(deploy: Deployer) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(deploy.server.get("/_sagehen/status"))
    return told


def free_shares(deploy: Deployer) -> dict[str, float]:
    return {gpu["id"]: gpu["free"] for gpu in status(deploy)["gpus"]["gpus"]}


def test_each_instance_has_a_gpu_of_its_own_and_a_third_none(deploy, created, wait_until):
    assert created("first")["EndpointStatus"] == "InService"
    assert reported(deploy, "first")["CUDA_VISIBLE_DEVICES"] == "0"
    assert created("second")["EndpointStatus"] == "InService"
    assert reported(deploy, "second") == {
        "CUDA_VISIBLE_DEVICES": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "TF_FORCE_GPU_ALLOW_GROWTH": None,
        "XLA_PYTHON_CLIENT_MEM_FRACTION": None,
    }
    third = created("third")
    assert third["EndpointStatus"] == "Failed"
    assert third["FailureReason"].startswith(
        "CapacityError: Unable to provision requested ML compute capacity due to "
        "InsufficientInstanceCapacity error. Please retry using a different ML instance type or "
        "after some time. (ml.g5.xlarge needs 1 GPU, and too few of this machine's 2 GPUs are free"
    )
    assert "held by: endpoint first, instance i-" in third["FailureReason"]
    # An update needs a GPU for the new instance beside the old one.
    deploy.config("again", REPORTS, ONE_WORKER, InstanceType=G5)
    deploy.sagemaker.update_endpoint(EndpointName="first", EndpointConfigName="again")
    rolled_back = deploy.settled("first")
    assert rolled_back["EndpointStatus"] == "InService"
    assert rolled_back["EndpointConfigName"] == "first"
    assert rolled_back["FailureReason"].startswith("CapacityError: ")
    assert reported(deploy, "first")["CUDA_VISIBLE_DEVICES"] == "0"
    shown = run_command("status", "--home", deploy.server.home).stdout
    assert "GPUs: 2, of which 0 free" in shown
    assert "GPU 1 (NVIDIA A10G): endpoint second, instance i-" in shown
    # A type without GPUs sees none, and takes none.
    assert created("small", "ml.m5.large")["EndpointStatus"] == "InService"
    assert reported(deploy, "small")["CUDA_VISIBLE_DEVICES"] == ""
    # What is deleted is handed back, to whoever waits for it.
    deploy.sagemaker.delete_endpoint(EndpointName="third")
    deploy.sagemaker.delete_endpoint(EndpointName="second")
    deploy.sagemaker.create_endpoint(EndpointName="fourth", EndpointConfigName="second")
    assert deploy.settled("fourth")["EndpointStatus"] == "InService"
    assert reported(deploy, "fourth")["CUDA_VISIBLE_DEVICES"] == "1"
    # Now the update has room.
    deploy.sagemaker.delete_endpoint(EndpointName="fourth")
    wait_until(lambda: free_shares(deploy) == {"0": 0, "1": 1})
    deploy.sagemaker.update_endpoint(EndpointName="first", EndpointConfigName="again")
    updated = deploy.settled("first")
    assert (updated["EndpointConfigName"], "FailureReason" in updated) == ("again", False)
    assert reported(deploy, "first")["CUDA_VISIBLE_DEVICES"] == "1"
    wait_until(lambda: free_shares(deploy) == {"0": 1, "1": 0})


def test_a_large_type_has_all_gpus_and_fractions_share_them(deploy, created):
    assert (
        created("large", "ml.g5.12xlarge", SAGEMAKER_MODEL_SERVER_WORKERS="")["EndpointStatus"]
        == "InService"
    )
    assert reported(deploy, "large")["CUDA_VISIBLE_DEVICES"] == "0,1"
    (log,) = (deploy.server.home / "logs" / "endpoints" / "large").rglob("primary.log")
    # The log is read from a pipe: it may come after the answer.
    eventually(
        lambda: sorted(re.findall(r"this worker has GPU (\w+)", log.read_text())) == ["0", "1"]
    )
    deploy.sagemaker.delete_endpoint(EndpointName="large")
    for name in ("half", "other-half"):
        assert created(name, SAGEHEN_GPU_FRACTION="0.5")["EndpointStatus"] == "InService"
        assert reported(deploy, name) == {
            "CUDA_VISIBLE_DEVICES": "0",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
            "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5",
        }
    # Both an endpoint with a fraction and its update fit onto one GPU.
    assert created("quarter", SAGEHEN_GPU_FRACTION="0.25")["EndpointStatus"] == "InService"
    deploy.config("next", REPORTS, {**ONE_WORKER, "SAGEHEN_GPU_FRACTION": "0.25"}, InstanceType=G5)
    deploy.sagemaker.update_endpoint(EndpointName="quarter", EndpointConfigName="next")
    assert deploy.settled("quarter")["EndpointConfigName"] == "next"
    assert reported(deploy, "quarter")["CUDA_VISIBLE_DEVICES"] == "1"
    eventually(lambda: free_shares(deploy) == {"0": 0, "1": 0.75})
    with pytest.raises(ClientError, match="SAGEHEN_GPU_FRACTION is '2'; it must be above 0"):
        deploy.model("wrong", environment={"SAGEHEN_GPU_FRACTION": "2"})


def test_the_containers_of_a_pipeline_share_the_gpus(deploy, created):
    created("alone")
    definition = deploy.sagemaker.describe_model(ModelName="alone")["PrimaryContainer"]
    container = {name: definition[name] for name in ("Image", "ModelDataUrl", "Environment")}
    deploy.sagemaker.create_model(
        ModelName="both", ExecutionRoleArn=ROLE, Containers=[container, container]
    )
    variant = {"VariantName": "a", "ModelName": "both", "InstanceType": G5}
    deploy.sagemaker.create_endpoint_config(
        EndpointConfigName="both", ProductionVariants=[{**variant, "InitialInstanceCount": 1}]
    )
    deploy.sagemaker.create_endpoint(EndpointName="both", EndpointConfigName="both")
    assert deploy.settled("both")["EndpointStatus"] == "InService"
    assert reported(deploy, "both")["CUDA_VISIBLE_DEVICES"] == "1"
    assert free_shares(deploy) == {"0": 0, "1": 0}


def test_a_job_waits_for_its_gpus_and_its_script_counts_them(deploy, created, wait_until):
    created("holder")
    s3 = deploy.s3
    s3.create_bucket(Bucket="jobs")
    program = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES > $SAGEMAKER_BASE_DIR/model/seen"]
    deploy.sagemaker.create_training_job(
        TrainingJobName="waits",
        AlgorithmSpecification={
            "TrainingImage": "none",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": program,
        },
        RoleArn=ROLE,
        OutputDataConfig={"S3OutputPath": "s3://jobs/out", "CompressionType": "NONE"},
        ResourceConfig={"InstanceType": G5, "InstanceCount": 2, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 60},
    )

    def described() -> dict[str, Any]:
        told: dict[str, Any] = deploy.sagemaker.describe_training_job(TrainingJobName="waits")
        return told

    wait_until(lambda: described()["SecondaryStatus"] == "Starting")
    deploy.sagemaker.delete_endpoint(EndpointName="holder")
    wait_until(lambda: described()["TrainingJobStatus"] in ("Completed", "Failed", "Stopped"))
    assert described()["TrainingJobStatus"] == "Completed", described()
    listed = s3.list_objects_v2(Bucket="jobs", Prefix="out/waits/output/model/")["Contents"]
    seen = s3.get_object(Bucket="jobs", Key=listed[0]["Key"])["Body"].read()
    assert seen.strip() in (b"0", b"1")
    eventually(lambda: free_shares(deploy) == {"0": 1, "1": 1})


def test_gpus_are_counted_anew_after_the_agent_was_killed(deploy, created, wait_until):
    created("stays")
    created("stays-too")
    before = {reported(deploy, name)["CUDA_VISIBLE_DEVICES"] for name in ("stays", "stays-too")}
    agent = deploy.server.pid("agent")
    os.kill(agent, signal.SIGKILL)
    wait_until(lambda: deploy.server.pids().get("agent", agent) != agent)

    def serves() -> set[str]:
        try:
            return {
                reported(deploy, name)["CUDA_VISIBLE_DEVICES"] for name in ("stays", "stays-too")
            }
        except ClientError:
            return set()

    wait_until(lambda: serves() == before == {"0", "1"})
    assert free_shares(deploy) == {"0": 0, "1": 0}


def test_utilization_is_published(deploy, created, wait_until):
    created("busy", "ml.g5.12xlarge")

    def exposed() -> dict[str, float]:
        lines = deploy.server.get("/_sagehen/metrics").decode().splitlines()
        return {
            line.partition("{")[0]: float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith("sagehen_gpu") and 'endpoint="busy"' in line
        }

    wait_until(
        lambda: (
            exposed()
            == {
                "sagehen_gpu_utilization_percent": 80.0,
                "sagehen_gpu_memory_utilization_percent": 50.0,
            }
        )
    )
