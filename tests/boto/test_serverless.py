"""Serverless endpoints, and endpoints that scale from zero, with a real client."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from support.deploy import DOUBLE, pack
from support.server import eventually

CONFIG = {"MemorySizeInMB": 1024, "MaxConcurrency": 4}
IDLE_SECONDS = 2
FROM_ZERO = {"SAGEHEN_SCALE_FROM_ZERO": "true"}


def held_by(gate) -> str:
    """The code of a model that answers once the file `gate` is there."""
    return f"""
import time
from pathlib import Path

def model_fn(model_dir):
    return 2.0

def predict_fn(data, model):
    while not Path({str(gate)!r}).exists():
        time.sleep(0.01)
    return data * model
"""


class Serverless:
    """Serverless endpoints on one server, whose instances stop after IDLE_SECONDS."""

    def __init__(self, deployer) -> None:
        self.deployer = deployer
        self.sagemaker, self.runtime = deployer.sagemaker, deployer.runtime

    def config(self, name: str, script: str = DOUBLE, slots: int = 8, **serverless: int) -> None:
        self.deployer.model(name, script, {"SAGEHEN_SLOTS": str(slots)})
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": name,
            "ServerlessConfig": {**CONFIG, **serverless},
        }
        self.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])

    def endpoint(self, name: str, script: str = DOUBLE, slots: int = 8, **serverless: int) -> dict:
        self.config(name, script, slots, **serverless)
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        return self.deployer.settled(name)

    def call(self, name: str) -> str:
        return self.deployer.invoke(name)

    def instances(self, name: str) -> list[dict]:
        status = json.loads(self.deployer.server.get("/_sagehen/status"))
        (endpoint,) = (each for each in status["endpoints"] if each["name"] == name)
        return endpoint["variants"][0]["instances"]

    def comes_to_zero(self, name: str) -> None:
        eventually(lambda: not self.instances(name))


@pytest.fixture(scope="module")
def serverless(make_server, make_deployer) -> Serverless:
    server = make_server(serverless_idle_seconds=str(IDLE_SECONDS), gateways="2")
    return Serverless(make_deployer(server))


def test_it_starts_stops_and_starts_again(serverless):
    described = serverless.endpoint("plain")
    assert described["EndpointStatus"] == "InService"
    (variant,) = described["ProductionVariants"]
    assert variant["CurrentServerlessConfig"] == CONFIG
    assert variant["DesiredServerlessConfig"] == CONFIG
    assert "CurrentInstanceCount" not in variant
    assert serverless.call("plain") == "[2.0, 4.0]"
    serverless.comes_to_zero("plain")
    assert serverless.deployer.status("plain") == "InService"
    assert serverless.call("plain") == "[2.0, 4.0]"
    assert len(serverless.instances("plain")) == 1
    serverless.comes_to_zero("plain")
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(serverless.call, ["plain"] * 4))
    assert answers == ["[2.0, 4.0]"] * 4
    assert len(serverless.instances("plain")) == 1


def test_a_model_that_does_not_start_fails_the_endpoint(serverless):
    described = serverless.endpoint("broken", "def model_fn(model_dir):\n    raise OSError(5)\n")
    assert described["EndpointStatus"] == "Failed"
    assert "AllTraffic" in described["FailureReason"]


def test_calls_over_the_most_concurrency_are_throttled(serverless, module_gates):
    gate = module_gates / "answers"
    serverless.endpoint("two", held_by(gate), MaxConcurrency=2)
    with ThreadPoolExecutor(2) as pool:
        held = [pool.submit(serverless.call, "two") for _ in range(2)]
        eventually(lambda: in_flight(serverless, "two") == 2)
        with pytest.raises(ClientError) as caught:
            serverless.call("two")
        gate.touch()
        error = caught.value.response
        assert error["Error"]["Code"] == "ThrottlingException"
        assert error["ResponseMetadata"]["HTTPStatusCode"] == 400
        assert str(caught.value).endswith(": None")
        assert [each.result() for each in held] == ["[2.0, 4.0]"] * 2


def test_another_instance_starts_when_the_first_is_full(serverless, module_gates):
    gate = module_gates / "full"
    serverless.endpoint("full", held_by(gate), slots=1, MaxConcurrency=2)
    with ThreadPoolExecutor(2) as pool:
        held = [pool.submit(serverless.call, "full") for _ in range(2)]
        eventually(lambda: in_service(serverless, "full") == 2)
        gate.touch()
        assert [each.result() for each in held] == ["[2.0, 4.0]"] * 2


def in_service(serverless, name: str) -> int:
    states = [each["state"] for each in serverless.instances(name)]
    return states.count("InService")


def in_flight(serverless, name: str) -> float:
    lines = serverless.deployer.server.get("/_sagehen/metrics").decode().splitlines()
    prefix = f'sagehen_concurrent_requests_max{{endpoint="{name}"'
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(prefix))


def test_large_bodies_are_refused(serverless):
    serverless.endpoint("large")
    with pytest.raises(ClientError) as caught:
        serverless.runtime.invoke_endpoint(
            EndpointName="large", Body=bytes(4 * 2**20 + 1), ContentType="text/csv"
        )
    assert caught.value.response["Error"]["Code"] == "ValidationError"


def test_provisioned_concurrency_keeps_an_instance(serverless):
    serverless.endpoint("kept", ProvisionedConcurrency=1)
    serverless.endpoint("other")
    serverless.comes_to_zero("other")
    assert len(serverless.instances("kept")) == 1
    serverless.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="kept",
        DesiredWeightsAndCapacities=[
            {
                "VariantName": "AllTraffic",
                "ServerlessUpdateConfig": {"MaxConcurrency": 3, "ProvisionedConcurrency": 2},
            }
        ],
    )
    (variant,) = serverless.deployer.settled("kept")["ProductionVariants"]
    assert variant["CurrentServerlessConfig"] == {
        "MemorySizeInMB": 1024, "MaxConcurrency": 3, "ProvisionedConcurrency": 2,
    }  # fmt: skip


def test_instances_do_not_become_serverless_but_the_other_way(serverless):
    serverless.endpoint("convert")
    serverless.deployer.config("instances")
    serverless.sagemaker.update_endpoint(EndpointName="convert", EndpointConfigName="instances")
    (variant,) = serverless.deployer.settled("convert")["ProductionVariants"]
    assert variant["CurrentInstanceCount"] == 1
    assert serverless.call("convert") == "[2.0, 4.0]"
    with pytest.raises(ClientError) as caught:
        serverless.sagemaker.update_endpoint(EndpointName="convert", EndpointConfigName="convert")
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_starts_are_measured(serverless):
    serverless.endpoint("measured")
    serverless.call("measured")
    name = 'sagehen_model_setup_time_microseconds_sum{endpoint="measured"'

    def measured() -> list[float]:
        metrics = serverless.deployer.server.get("/_sagehen/metrics").decode()
        mine = (line for line in metrics.splitlines() if line.startswith(name))
        return [float(line.rpartition(" ")[2]) for line in mine]

    # It is the agent's to tell, which may not answer in time.
    eventually(lambda: any(one > 1000 for one in measured()))


# Scale from zero


def to_zero(serverless, name: str) -> None:
    serverless.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName=name,
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": 0}],
    )
    serverless.deployer.settled(name)
    serverless.comes_to_zero(name)


def test_a_realtime_endpoint_scales_from_zero(serverless):
    deployer = serverless.deployer
    deployer.endpoint("zero", environment=FROM_ZERO)
    to_zero(serverless, "zero")
    assert serverless.call("zero") == "[2.0, 4.0]"
    (variant,) = deployer.sagemaker.describe_endpoint(EndpointName="zero")["ProductionVariants"]
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (1, 0)
    serverless.comes_to_zero("zero")


def test_a_multi_model_endpoint_scales_from_zero(serverless):
    deployer = serverless.deployer
    deployer.multi_model("many", **FROM_ZERO)
    deployer.s3.put_object(
        Bucket="many", Key="many/0.tar.gz", Body=pack({"code/inference.py": DOUBLE})
    )
    to_zero(serverless, "many")
    answer = serverless.runtime.invoke_endpoint(
        EndpointName="many",
        TargetModel="0.tar.gz",
        Body="[1, 2]",
        ContentType="application/json",
    )
    assert answer["Body"].read() == b"[2.0, 4.0]"


def test_an_asynchronous_endpoint_scales_from_zero(serverless):
    deployer = serverless.deployer
    deployer.model("later", environment=FROM_ZERO)
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": "later",
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    deployer.s3.create_bucket(Bucket="later")
    deployer.sagemaker.create_endpoint_config(
        EndpointConfigName="later",
        ProductionVariants=[variant],
        AsyncInferenceConfig={"OutputConfig": {"S3OutputPath": "s3://later/out"}},
    )
    deployer.sagemaker.create_endpoint(EndpointName="later", EndpointConfigName="later")
    deployer.settled("later")
    to_zero(serverless, "later")
    deployer.s3.put_object(Bucket="later", Key="in", Body=b"[1, 2]")
    accepted = serverless.runtime.invoke_endpoint_async(
        EndpointName="later", InputLocation="s3://later/in", ContentType="application/json"
    )
    key = accepted["OutputLocation"].removeprefix("s3://later/")
    eventually(lambda: key in keys(deployer.s3, "later"))
    assert deployer.s3.get_object(Bucket="later", Key=key)["Body"].read() == b"[2.0, 4.0]"
    serverless.comes_to_zero("later")


def keys(s3, bucket: str) -> list[str]:
    return [each["Key"] for each in s3.list_objects_v2(Bucket=bucket).get("Contents", ())]
