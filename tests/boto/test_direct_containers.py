"""Containers that are invoked directly, by a real boto3 client of a real server."""

import contextlib
import json
import os
import signal

import pytest
from botocore.exceptions import ClientError

from support.containers import deploy_several, figure
from support.processes import CONTAINER_NAME, container_pid

TIMES = (
    CONTAINER_NAME
    + """
def model_fn(model_dir): return %d
def predict_fn(data, model): return [data.item() * model, container_name()]
"""
)
JSON = "application/json"


@pytest.fixture(scope="module")
def direct(deploy):
    """An endpoint of two containers, of which one doubles and one trebles."""
    described = deploy_several(
        deploy,
        "direct",
        {"script": TIMES % 2, "ContainerHostname": "double"},
        {"script": TIMES % 3, "ContainerHostname": "treble"},
        mode="Direct",
    )
    assert described["EndpointStatus"] == "InService"
    return deploy


def ask(direct, hostname, number=7):
    answer = direct.runtime.invoke_endpoint(
        EndpointName="direct",
        TargetContainerHostname=hostname,
        Body=json.dumps(number),
        ContentType=JSON,
    )
    return json.loads(answer["Body"].read())


def test_the_model_is_described_as_it_was_created(direct):
    model = direct.sagemaker.describe_model(ModelName="direct")
    assert model["InferenceExecutionConfig"] == {"Mode": "Direct"}
    assert [one["ContainerHostname"] for one in model["Containers"]] == ["double", "treble"]


def test_each_answers_for_itself(direct):
    doubled, trebled = ask(direct, "double"), ask(direct, "treble")
    assert (doubled[0], trebled[0]) == (14, 21)
    assert doubled[1] != trebled[1]


def test_a_stream_names_one_too(direct):
    answer = direct.runtime.invoke_endpoint_with_response_stream(
        EndpointName="direct", TargetContainerHostname="treble", Body=b"7", ContentType=JSON
    )
    pieces = b"".join(event["PayloadPart"]["Bytes"] for event in answer["Body"])
    assert json.loads(pieces)[0] == 21


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({}, "is missing a target container hostname header"),
        ({"TargetContainerHostname": "fourfold"}, "has no container fourfold. It has: double, tr"),
        ({"TargetContainerHostname": "not_a_name"}, "failed to satisfy constraint"),
    ],
)
def test_one_that_is_there_has_to_be_named(direct, named, said):
    with pytest.raises(ClientError, match=said) as caught:
        direct.runtime.invoke_endpoint(EndpointName="direct", Body=b"7", **named)
    assert caught.value.response["Error"]["Code"] == "ValidationError"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_each_is_counted_and_all_together(direct, wait_until):
    def counted():
        mine = [
            figure(direct.server, "container_invocations_total", "direct", one)
            for one in ("double", "treble")
        ]
        return mine, figure(direct.server, "invocations_total", "direct")

    before, _ = counted()
    for hostname in ("double", "treble", "treble"):
        ask(direct, hostname)
    least = [before[0] + 1, before[1] + 2]
    told = []

    def is_told():
        told[:] = counted()
        each, all_together = told
        reached = all(now >= one for now, one in zip(each, least, strict=True))
        return reached and all_together == sum(each)

    wait_until(is_told)
    each, all_together = told
    assert [now >= one for now, one in zip(each, least, strict=True)] == [True, True]
    assert all_together == sum(each)


def test_when_one_is_killed_both_come_back(direct, wait_until):
    def name_of(hostname):
        with contextlib.suppress(ClientError):
            return ask(direct, hostname)[1]

    before = {one: name_of(one) for one in ("double", "treble")}
    os.kill(container_pid(before["treble"]), signal.SIGKILL)
    for hostname, name in before.items():
        wait_until(lambda hostname=hostname, name=name: name_of(hostname) not in (None, name))
    assert [ask(direct, one)[0] for one in ("double", "treble")] == [14, 21]
