"""Models and jobs on a real NVIDIA GPU, by PyTorch: what a machine without one cannot show."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import psutil
import pytest
from botocore.exceptions import ClientError

from support.deploy import ROLE, Deployer
from support.fixtures.gpu_card import (
    ALLOCATED_MIB,
    CPU,
    G5,
    HALF,
    ONE_WORKER,
    ROW,
    SLACK_MIB,
    TASKS,
    ask,
    before_mib,
    created,
    deploy,
    free_share,
    total_mib,
    used_mib,
)
from support.server import eventually

__all__ = ["before_mib", "created", "deploy"]

pytestmark = pytest.mark.gpu

TRAIN = """
import os, torch
torch.manual_seed(0)
data = torch.randn(512, 3, device="cuda:0")
values = data @ torch.tensor([1.0, 2.0, 3.0], device="cuda:0")
model = torch.nn.Linear(3, 1, bias=False).to("cuda:0")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(200):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(data)[:, 0], values).backward()
    optimizer.step()
with open(os.environ["SAGEMAKER_BASE_DIR"] + "/model/weights", "w") as file:
    file.write(str([round(weight, 3) for weight in model.weight[0].tolist()]))
"""


def answers(deploy: Deployer, endpoint: str) -> bool:
    try:
        return bool(ask(deploy, endpoint, "predict", ROW))
    except ClientError:
        return False


def test_a_model_on_the_card_answers_as_on_the_processor(deploy, created):
    created("card")
    created("processor", CPU)
    seen = ask(deploy, "card", "look")
    assert (seen["device"], seen["count"], seen["visible"]) == ("cuda:0", 1, "0")
    assert "/dev/nvidia0" in seen["nodes"]
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    assert seen["tool"] == listed.stdout.strip()
    without = ask(deploy, "processor", "look")
    assert (without["device"], without["count"], without["visible"]) == ("cpu", 0, "")
    (row,), (expected,) = (ask(deploy, name, "predict", ROW) for name in ("card", "processor"))
    assert row == pytest.approx(expected, abs=1e-4)


def test_processes_of_a_container_share_memory_of_the_card(deploy, created):
    created("shares")
    assert ask(deploy, "shares", "share_between_processes") == "0 28.0"


def test_a_killed_instance_gives_its_memory_back_and_is_replaced(deploy, created, before_mib):
    created("killed", BALLAST=str(ALLOCATED_MIB))
    full = used_mib()
    assert full >= before_mib + ALLOCATED_MIB
    model_servers = [
        process
        for process in psutil.Process(deploy.server.pid("agent")).children(recursive=True)
        if "sagehen.containers.modelserver" in " ".join(process.cmdline())
    ]
    assert model_servers
    for process in model_servers:
        process.send_signal(signal.SIGKILL)
    psutil.wait_procs(model_servers, timeout=60)
    eventually(lambda: answers(deploy, "killed"))
    # The new instance has its own memory, and the old one's is free.
    eventually(lambda: abs(used_mib() - full) <= SLACK_MIB)


def test_a_killed_agent_leaves_nothing_on_the_card(deploy, created, before_mib):
    created("outlives", BALLAST=str(ALLOCATED_MIB))
    full = used_mib()
    assert full >= before_mib + ALLOCATED_MIB
    agent = deploy.server.pid("agent")
    os.kill(agent, signal.SIGKILL)
    eventually(lambda: deploy.server.pids().get("agent", agent) != agent)
    eventually(lambda: answers(deploy, "outlives"))
    eventually(lambda: abs(used_mib() - full) <= SLACK_MIB)
    assert free_share(deploy) == 0


def test_two_endpoints_share_the_card_and_a_third_is_refused(deploy, created):
    created("half", **HALF)
    created("other-half", **HALF)
    assert free_share(deploy) == 0
    third = deploy.endpoint("third", TASKS, ONE_WORKER | HALF, InstanceType=G5)
    assert third["EndpointStatus"] == "Failed"
    assert "InsufficientInstanceCapacity" in third["FailureReason"]
    assert "held by: endpoint half, instance i-" in third["FailureReason"]
    assert ask(deploy, "half", "predict", ROW) == ask(deploy, "other-half", "predict", ROW)
    # PyTorch may allocate half of the card's memory in each.
    assert ask(deploy, "half", "allocate", 0.4) is True
    assert "out of memory" in ask(deploy, "half", "allocate", 0.6)


def test_jobs_train_on_the_card_and_wait_for_it(deploy, created, gates):
    deploy.s3.create_bucket(Bucket="jobs")
    script = gates / "train.py"
    script.write_text(TRAIN)
    created("holder")
    create_job(deploy, "waits", G5, str(script))
    eventually(lambda: secondary(deploy, "waits") == "Starting")
    # It takes no place from jobs that need no GPU, though only one may run.
    create_job(deploy, "needs-none", CPU, "-c", "print('done')")
    eventually(lambda: secondary(deploy, "needs-none") == "Completed")
    assert secondary(deploy, "waits") == "Starting"
    deploy.sagemaker.delete_endpoint(EndpointName="holder")
    eventually(lambda: secondary(deploy, "waits") in ("Completed", "Failed"))
    described = deploy.sagemaker.describe_training_job(TrainingJobName="waits")
    assert described["TrainingJobStatus"] == "Completed", described
    stored = deploy.s3.get_object(Bucket="jobs", Key="out/waits/output/model/weights")
    assert stored["Body"].read() == b"[1.0, 2.0, 3.0]"
    eventually(lambda: free_share(deploy) == 1)


def create_job(deploy: Deployer, name: str, instance_type: str, *arguments: str) -> None:
    deploy.sagemaker.create_training_job(
        TrainingJobName=name,
        AlgorithmSpecification={
            "TrainingImage": "none",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": [sys.executable, *arguments],
        },
        RoleArn=ROLE,
        OutputDataConfig={"S3OutputPath": "s3://jobs/out", "CompressionType": "NONE"},
        ResourceConfig={"InstanceType": instance_type, "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 300},
    )


def secondary(deploy: Deployer, name: str) -> str:
    described = deploy.sagemaker.describe_training_job(TrainingJobName=name)
    return str(described["SecondaryStatus"])


def test_the_cards_utilization_is_in_cloudwatch(deploy, created):
    created("busy", BALLAST=str(ALLOCATED_MIB))
    cloudwatch = deploy.server.client("cloudwatch")

    def highest(metric: str) -> float:
        now = datetime.now(UTC)
        points = cloudwatch.get_metric_statistics(
            Namespace="/aws/sagemaker/Endpoints",
            MetricName=metric,
            Dimensions=[
                {"Name": "EndpointName", "Value": "busy"},
                {"Name": "VariantName", "Value": "AllTraffic"},
            ],
            StartTime=now - timedelta(minutes=10),
            EndTime=now + timedelta(minutes=1),
            Period=60,
            Statistics=["Maximum"],
        )["Datapoints"]
        return max((point["Maximum"] for point in points), default=0.0)

    def is_busy() -> bool:
        ask(deploy, "busy", "multiply", 2)
        return highest("GPUUtilization") > 50

    eventually(is_busy)
    assert highest("GPUMemoryUtilization") >= 100 * ALLOCATED_MIB / total_mib()
