"""Containers with networks of their own, behind a real server."""

import json
import os
import re
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from support.deploy import IMAGE, ROLE, Deployer
from support.namespaces import may_unshare_network
from support.server import eventually

pytestmark = may_unshare_network

CONTAINER = Path(__file__).with_name("fixed_port_container.py")
REACHING = (
    CONTAINER.read_text().split("class Handler")[0]
    + """
def model_fn(folder):
    return None

def transform_fn(model, data, content_type, accept):
    return reach(data if isinstance(data, str) else data.decode()), "text/plain"
"""
)
REFUSED = {"ConnectionRefusedError", "OSError"}
"""nobody listens in the container; the network is unreachable"""


@pytest.fixture(scope="module")
def deployer(make_server, make_deployer) -> Deployer:
    images = {"fixed": [sys.executable, str(CONTAINER)]}
    return make_deployer(make_server(gates=False, images=json.dumps(images)))


def server_address(deployer: Deployer) -> str:
    return urlsplit(deployer.server.url).netloc


def make_config(
    deployer: Deployer,
    name: str,
    image: str = "fixed",
    count: int = 1,
    isolated: bool = False,
    config_isolated: bool = False,
    url: str | None = None,
    output: str | None = None,
    **environment: str,
) -> None:
    """`output`: the S3 path of an asynchronous endpoint's answers."""
    container = {"Image": image, "Environment": {"NAME": name, **environment}}
    deployer.sagemaker.create_model(
        ModelName=name,
        ExecutionRoleArn=ROLE,
        PrimaryContainer=container | ({"ModelDataUrl": url} if url else {}),
        EnableNetworkIsolation=isolated,
    )
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": name,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": count,
    }
    more = {"AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": output}}} if output else {}
    deployer.sagemaker.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[variant],
        EnableNetworkIsolation=config_isolated,
        **more,
    )


def deploy(deployer: Deployer, name: str, **options: object) -> None:
    make_config(deployer, name, **options)  # type: ignore[arg-type]
    deployer.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    described = deployer.settled(name)
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")


def answers(deployer: Deployer, endpoint: str, count: int = 24) -> set[str]:
    return {deployer.invoke(endpoint, "") for _ in range(count)}


def names(found: set[str]) -> set[str]:
    return {answer.split()[0] for answer in found}


def test_containers_on_one_fixed_port_are_told_apart(deployer: Deployer) -> None:
    """Two endpoints, two instances, and an update, all of a server that knows only 8080."""
    deploy(deployer, "one", count=2)
    deploy(deployer, "other")
    found = answers(deployer, "one")
    assert (names(found), len(found)) == ({"one"}, 2), "two instances, each with a home"
    assert names(answers(deployer, "other", 5)) == {"other"}
    make_config(deployer, "newer")
    deployer.sagemaker.update_endpoint(EndpointName="one", EndpointConfigName="newer")
    assert deployer.settled("one")["EndpointStatus"] == "InService"
    eventually(lambda: names(answers(deployer, "one", 5)) == {"newer"})
    assert names(answers(deployer, "other", 5)) == {"other"}


def test_a_container_reaches_the_server_and_no_more_of_the_machines_loopback(
    deployer: Deployer,
) -> None:
    deploy(deployer, "reaching")
    assert deployer.invoke("reaching", server_address(deployer)) == "HTTP/1.1 200 OK"
    assert deployer.invoke("reaching", "127.0.0.1:8080").startswith("HTTP/1.")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert deployer.invoke("reaching", f"127.0.0.1:{port}") == "ConnectionRefusedError"


@pytest.mark.parametrize("isolated_by", ["nothing", "isolated", "config_isolated"])
def test_a_script_reaches_the_server_only_without_isolation(
    deployer: Deployer, isolated_by: str
) -> None:
    name = f"script-{isolated_by}".replace("_", "-")
    url = deployer.upload(f"{name}/model.tar.gz", REACHING)
    isolated = isolated_by != "nothing"
    deploy(deployer, name, image=IMAGE, url=url, **({isolated_by: True} if isolated else {}))
    answer = deployer.invoke(name, server_address(deployer))
    assert answer in REFUSED if isolated else answer == "HTTP/1.1 200 OK"


def test_an_isolated_command_serves_and_reaches_nothing(deployer: Deployer) -> None:
    deploy(deployer, "isolated", isolated=True)
    assert names(answers(deployer, "isolated", 2)) == {"isolated"}
    for address in (server_address(deployer), "192.0.2.1:80"):
        assert deployer.invoke("isolated", address) in REFUSED


def test_an_asynchronous_endpoint_reaches_a_command_in_its_network(deployer: Deployer) -> None:
    s3 = deployer.server.client("s3")
    s3.create_bucket(Bucket="asynchronous")
    s3.put_object(Bucket="asynchronous", Key="in", Body=b"")
    deploy(deployer, "later", output="s3://asynchronous/out")
    asked = deployer.server.client("sagemaker-runtime").invoke_endpoint_async(
        EndpointName="later", InputLocation="s3://asynchronous/in"
    )
    key = asked["OutputLocation"].removeprefix("s3://asynchronous/")
    waiter = s3.get_waiter("object_exists")
    waiter.wait(Bucket="asynchronous", Key=key, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    answer = s3.get_object(Bucket="asynchronous", Key=key)["Body"].read().decode()
    assert names({answer}) == {"later"}


JOB = (
    "import os, sys; exec(open(sys.argv[1]).read().split('class Handler')[0]); "
    "print('reached:', reach(os.environ['WHERE']), flush=True)"
)


def test_a_job_with_isolation_reaches_nothing(deployer: Deployer) -> None:
    deployer.s3.create_bucket(Bucket="jobs")
    deployer.sagemaker.create_training_job(
        TrainingJobName="isolated",
        RoleArn=ROLE,
        AlgorithmSpecification={
            "TrainingImage": "none",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": [sys.executable, "-c", JOB, str(CONTAINER)],
        },
        OutputDataConfig={"S3OutputPath": "s3://jobs/"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 300},
        Environment={"WHERE": server_address(deployer)},
        EnableNetworkIsolation=True,
    )

    def status() -> str:
        described = deployer.sagemaker.describe_training_job(TrainingJobName="isolated")
        return str(described["TrainingJobStatus"])

    eventually(lambda: status() in ("Completed", "Failed"), 120)
    log = deployer.server.home / "logs" / "training-jobs" / "isolated" / "algo-1.log"
    reached = re.findall(r"reached: (\S+)", log.read_text())
    assert reached
    assert set(reached) <= REFUSED


def test_loading_container_with_a_metrics_port_comes_into_service(deployer: Deployer) -> None:
    """And meanwhile, the container's log says where it listens."""
    deployer.s3.create_bucket(Bucket="gates")
    gate = {"Bucket": "gates", "Key": "loaded"}
    until = deployer.s3.generate_presigned_url("get_object", Params=gate)
    make_config(deployer, "loading", LOADS_UNTIL=until)
    deployer.sagemaker.create_endpoint(EndpointName="loading", EndpointConfigName="loading")
    hint = (
        "nothing listens on port 8080 (SAGEMAKER_BIND_TO_PORT); "
        "the container's processes listen on 9100, and /ping is answered on 9100"
    )
    logs = deployer.server.home / "logs"

    def is_hinted() -> bool:
        assert deployer.status("loading") == "Creating"
        return any(hint in log.read_text() for log in logs.rglob("*.log"))

    eventually(is_hinted, 60)
    deployer.s3.put_object(**gate)
    described = deployer.settled("loading")
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")


def test_after_a_kill_of_the_agent_all_answer_again_and_nothing_is_left(
    deployer: Deployer,
) -> None:
    deploy(deployer, "surviving")
    before = helpers(deployer)
    assert before
    os.kill(deployer.server.pid("agent"), signal.SIGKILL)
    eventually(lambda: not helpers(deployer) & before, 120)

    def answers_again() -> bool:
        try:
            return names(answers(deployer, "surviving", 1)) == {"surviving"}
        except Exception:
            return False

    eventually(answers_again, 120)


def children(deployer: Deployer) -> list[psutil.Process]:
    return psutil.Process(deployer.server.process.pid).children(recursive=True)


def helpers(deployer: Deployer) -> set[int]:
    """The programs that serve containers' networks."""
    found = set()
    for process in children(deployer):
        try:
            if process.name() in ("hand_over", "relay"):
                found.add(process.pid)
        except psutil.Error:
            continue
    return found
