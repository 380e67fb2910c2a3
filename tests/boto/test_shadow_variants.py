"""Shadow variants that really run, by a real boto3 client of a real server."""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from support.processes import CONTAINER_NAME, container_pid

# Notes what it is asked, and by which process; what it answers must never be seen.
NEXT = (
    CONTAINER_NAME
    + """
import json
from pathlib import Path

def model_fn(model_dir): return None
def input_fn(body, content_type): return json.loads(body)

def predict_fn(wish, model):
    with open(Path(wish["folder"], "copies"), "a") as copies:
        copies.write(json.dumps({"container": container_name(), "number": wish["number"]}) + "\\n")
    return "theirs"
"""
)
NOW = """
import json

def model_fn(model_dir): return None
def input_fn(body, content_type): return json.loads(body)
def predict_fn(wish, model): return wish["number"] * 2
"""


def variant(name, model, **more):
    return {
        "VariantName": name,
        "ModelName": model,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
        **more,
    }


def create(deploy, name, *, now=NOW, next_one=NEXT, **shadow):
    """An endpoint with a shadow variant `Next`; its description once it is settled."""
    deploy.config(f"{name}-now", now)
    deploy.config(f"{name}-next", next_one)
    deploy.sagemaker.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[variant("Now", f"{name}-now")],
        ShadowProductionVariants=[variant("Next", f"{name}-next", **shadow)],
    )
    deploy.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    return deploy.settled(name)


class Shadowed:
    """One endpoint with a shadow, asked with numbers."""

    def __init__(self, deploy, name, folder):
        self.deploy = deploy
        self.name = name
        self.folder = folder
        self.asked = 0

    def ask(self, **members):
        """Ask for twice the next number; that number."""
        request = self.request()
        answer = self.deploy.runtime.invoke_endpoint(**request, **members)
        assert json.loads(answer["Body"].read()) == self.asked * 2
        assert answer["InvokedProductionVariant"] == "Now"
        return self.asked

    def request(self):
        self.asked += 1
        return {
            "EndpointName": self.name,
            "Body": json.dumps({"folder": str(self.folder), "number": self.asked}),
            "ContentType": "application/json",
        }

    def copies(self):
        path = Path(self.folder, "copies")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def copied(self, *numbers):
        return set(numbers) <= {one["number"] for one in self.copies()}

    def figure(self, metric, variant):
        """A counter's value at `/_sagehen/metrics`."""
        told = self.deploy.server.get("/_sagehen/metrics").decode()
        labels = re.escape(f'{{endpoint="{self.name}",variant="{variant}"}}')
        found = re.search(rf"^sagehen_{metric}_total{labels} (\S+)$", told, re.MULTILINE)
        return float(found[1]) if found else 0

    def weigh(self, weight):
        self.deploy.sagemaker.update_endpoint_weights_and_capacities(
            EndpointName=self.name,
            DesiredWeightsAndCapacities=[{"VariantName": "Next", "DesiredWeight": weight}],
        )
        (shadow,) = self.deploy.settled(self.name)["ShadowProductionVariants"]
        assert shadow["CurrentWeight"] == weight


@pytest.fixture(scope="module")
def shadowed(deploy, tmp_path_factory):
    assert create(deploy, "shadowed")["EndpointStatus"] == "InService"
    return Shadowed(deploy, "shadowed", tmp_path_factory.mktemp("copies"))


def test_it_is_described(shadowed):
    sagemaker = shadowed.deploy.sagemaker
    described = sagemaker.describe_endpoint(EndpointName="shadowed")
    (shadow,) = described["ShadowProductionVariants"]
    assert shadow["VariantName"] == "Next"
    assert shadow["CurrentInstanceCount"] == shadow["DesiredInstanceCount"] == 1
    assert shadow["CurrentWeight"] == shadow["DesiredWeight"] == 1
    assert [one["VariantName"] for one in described["ProductionVariants"]] == ["Now"]
    config = sagemaker.describe_endpoint_config(EndpointConfigName="shadowed")
    assert config["ShadowProductionVariants"] == [
        variant("Next", "shadowed-next", InitialVariantWeight=1.0)
    ]


def test_every_request_is_copied_and_counted(shadowed, wait_until):
    numbers = [*(shadowed.ask() for _ in range(5)), shadowed.ask(TargetVariant="Now")]
    wait_until(lambda: shadowed.copied(*numbers))
    copied = [one["number"] for one in shadowed.copies() if one["number"] in numbers]
    assert sorted(copied) == numbers
    wait_until(lambda: shadowed.figure("invocations", "Now") == shadowed.asked)
    wait_until(lambda: shadowed.figure("invocations", "Next") >= len(numbers))


def test_a_stream_is_copied(shadowed, wait_until):
    request = shadowed.request()
    answer = shadowed.deploy.runtime.invoke_endpoint_with_response_stream(**request)
    pieces = b"".join(event["PayloadPart"]["Bytes"] for event in answer["Body"])
    assert json.loads(pieces) == shadowed.asked * 2
    wait_until(lambda: shadowed.copied(shadowed.asked))


def test_it_cannot_be_asked_for(shadowed):
    with pytest.raises(ClientError, match="no production variant Next") as caught:
        shadowed.deploy.runtime.invoke_endpoint(
            EndpointName="shadowed", TargetVariant="Next", Body=b"{}"
        )
    assert caught.value.response["Error"]["Code"] == "ValidationError"


def test_without_weight_it_gets_nothing_until_it_has_some(shadowed, wait_until):
    shadowed.weigh(0)
    alone = [shadowed.ask() for _ in range(3)]
    shadowed.weigh(1)
    number = shadowed.ask()
    wait_until(lambda: shadowed.copied(number))
    assert not any(map(shadowed.copied, alone))


def test_when_it_is_killed_production_goes_on_and_it_comes_back(shadowed, wait_until):
    def has_another_process():
        shadowed.ask()
        return shadowed.copies()[-1]["container"] != killed

    number = shadowed.ask()
    wait_until(lambda: shadowed.copied(number))
    killed = shadowed.copies()[-1]["container"]
    os.kill(container_pid(killed), signal.SIGKILL)
    for _ in range(20):
        shadowed.ask()
    assert shadowed.deploy.status("shadowed") == "InService"
    wait_until(has_another_process)


def test_a_shadow_that_does_not_start_fails_the_endpoint(deploy):
    described = create(deploy, "shadow-broken", next_one="raise RuntimeError('never')\n")
    assert described["EndpointStatus"] == "Failed"
    assert "variant Next did not pass the ping health check" in described["FailureReason"]
    deploy.sagemaker.delete_endpoint(EndpointName="shadow-broken")


def test_a_shadow_whose_every_answer_is_an_error_is_nothing_to_production(
    deploy, tmp_path, wait_until
):
    failing = NEXT.replace('return "theirs"', 'raise ValueError("no")')
    assert create(deploy, "shadow-failing", next_one=failing)["EndpointStatus"] == "InService"
    endpoint = Shadowed(deploy, "shadow-failing", tmp_path)
    for _ in range(5):
        endpoint.ask()
    wait_until(lambda: endpoint.figure("invocation_5xx_errors", "Next") == 5)
    wait_until(lambda: endpoint.figure("invocations", "Now") == 5)
    assert endpoint.figure("invocations", "Next") == 5
    assert endpoint.figure("shadow_copies_dropped", "Next") == 0
    assert endpoint.figure("invocation_model_errors", "Now") == 0


def test_multi_model_endpoints_have_none(deploy):
    deploy.config("shadow-single")
    deploy.upload("shadow-many/a.tar.gz")
    image = deploy.sagemaker.describe_model(ModelName="shadow-single")["PrimaryContainer"]["Image"]
    deploy.sagemaker.create_model(
        ModelName="shadow-many",
        ExecutionRoleArn="arn:aws:iam::000000000000:role/SageMaker",
        PrimaryContainer={
            "Image": image,
            "ModelDataUrl": "s3://models/shadow-many/",
            "Mode": "MultiModel",
        },
    )
    with pytest.raises(ClientError, match="not supported with multi-model endpoints") as caught:
        deploy.sagemaker.create_endpoint_config(
            EndpointConfigName="shadow-many",
            ProductionVariants=[variant("Now", "shadow-single")],
            ShadowProductionVariants=[variant("Next", "shadow-many")],
        )
    assert caught.value.response["Error"]["Code"] == "ValidationException"
