"""Inference pipelines that really run, by a real boto3 client of a real server."""

import json

import pytest
from botocore.exceptions import ClientError

from support.containers import deploy_several, figure
from support.deploy import IMAGE

# Each tells what it was asked, and adds what it found.
HEARS = """
import json, os

def model_fn(model_dir): return None

def input_fn(body, content_type):
    return {"body": json.loads(body), "type": content_type}

def predict_fn(asked, model, context):
    body = asked["body"]
    if body.get("fails") == "%(name)s":
        raise ValueError("not by %(name)s")
    asked = [asked["type"], context.get_request_header(0, "X-Amzn-SageMaker-Custom-Attributes")]
    grown = "." * body.pop("grows", 0)
    return {**body, "went": [*body.get("went", []), "%(name)s"], "%(name)s": asked, "grown": grown}

def output_fn(body, accept):
    return json.dumps({**body, "accept": accept}), "%(type)s"
"""
PIECES = """
def model_fn(model_dir): return None
def input_fn(body, content_type): return body
def predict_fn(body, model):
    yield b"first "
    yield body
"""
JSON = "application/json"


def hears(name, content_type=JSON):
    return {"script": HEARS % {"name": name, "type": content_type}}


@pytest.fixture(scope="module")
def three(deploy):
    """An endpoint of three containers without names."""
    described = deploy_several(
        deploy,
        "three",
        {**hears("a", "application/x-a"), "Environment": {"WHO": "a"}},
        {
            **hears("b", "application/x-b"),
            "Environment": {"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "application/x-wish"},
        },
        hears("c"),
    )
    assert described["EndpointStatus"] == "InService"
    assert len(described["ProductionVariants"][0]["DeployedImages"]) == 3
    return deploy


def ask(deploy, name="three", **body):
    answer = deploy.runtime.invoke_endpoint(
        EndpointName=name,
        Body=json.dumps(body),
        ContentType=JSON,
        Accept="application/x-mine",
        CustomAttributes="theirs",
    )
    return json.loads(answer["Body"].read())


def test_a_request_goes_through_all_of_them(three):
    told = ask(three)
    assert told["went"] == ["a", "b", "c"]
    assert told["a"] == [JSON, "theirs"]
    assert told["b"] == ["application/x-a", "theirs"]
    assert told["c"] == ["application/x-b", "theirs"]
    assert told["accept"] == "application/x-mine"


@pytest.mark.parametrize(("who", "hostname"), [("a", "container-1"), ("c", "container-3")])
def test_who_fails_is_named(three, who, hostname):
    with pytest.raises(ClientError, match=f"not by {who}") as caught:
        ask(three, fails=who)
    answer = caught.value.response
    assert type(caught.value).__name__ == "ModelError"
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert answer["OriginalStatusCode"] == 500
    assert f'Received server error (500) from {hostname} with message "not by {who}' in str(
        caught.value
    )


def test_what_grows_too_large_on_the_way_is_refused(three):
    with pytest.raises(ClientError, match="exceeded the maximum limit of 5 MB") as caught:
        ask(three, grows=6_000_000)
    assert "from container-1 to container-2 is 6000" in caught.value.response["OriginalMessage"]


def test_each_container_is_counted(three, wait_until):
    counted = "container_latency_microseconds_count"
    before = {
        one: figure(three.server, counted, "three", one) for one in ("container-1", "container-3")
    }
    ask(three)
    for one, value in before.items():
        wait_until(lambda one=one, value=value: figure(three.server, counted, "three", one) > value)


def test_no_container_can_be_asked_for(three):
    with pytest.raises(ClientError, match="not configured for direct invocation") as caught:
        three.runtime.invoke_endpoint(
            EndpointName="three", Body=b"{}", TargetContainerHostname="container-1"
        )
    assert caught.value.response["Error"]["Code"] == "ValidationError"


def test_logs_are_by_container(three):
    logs = three.server.home / "logs" / "endpoints" / "three" / "AllTraffic"
    names = {path.name for path in logs.glob("*/*.log")}
    assert names == {"container-1.log", "container-2.log", "container-3.log"}


def test_the_last_container_streams_and_one_that_does_not_start_is_named(deploy):
    described = deploy_several(deploy, "pieces", {"script": PIECES}, {"script": PIECES})
    assert described["EndpointStatus"] == "InService"
    answer = deploy.runtime.invoke_endpoint_with_response_stream(EndpointName="pieces", Body=b"x")
    pieces = [event["PayloadPart"]["Bytes"] for event in answer["Body"]]
    assert pieces == [b"first ", b"first x"]
    broken = {"script": "raise RuntimeError('never')\n", "ContainerHostname": "second"}
    described = deploy_several(
        deploy, "broken-pieces", {"script": PIECES, "ContainerHostname": "first"}, broken
    )
    assert described["EndpointStatus"] == "Failed"
    assert "The second container for production variant" in described["FailureReason"]


def test_one_of_them_may_hold_many_models(deploy, wait_until):
    deploy.upload("pipeline-many/x.tar.gz", HEARS % {"name": "x", "type": JSON})
    deploy.upload("pipeline-many/y.tar.gz", HEARS % {"name": "y", "type": JSON})
    many = {"Mode": "MultiModel", "ModelDataUrl": "s3://models/pipeline-many/"}
    deploy_several(deploy, "pipeline-many", hears("a"), many)
    for model in ("x", "y", "x"):
        answer = deploy.runtime.invoke_endpoint(
            EndpointName="pipeline-many",
            TargetModel=f"{model}.tar.gz",
            Body=b"{}",
            ContentType=JSON,
        )
        assert json.loads(answer["Body"].read())["went"] == ["a", model]
    hits = "model_cache_hits_total"
    wait_until(lambda: figure(deploy.server, hits, "pipeline-many") == 1)
    with pytest.raises(ClientError, match="is missing a target model header"):
        ask(deploy, "pipeline-many")


@pytest.mark.parametrize(
    ("containers", "mode", "said"),
    [
        ([{}] * 16, "Serial", "Member must have length less than or equal to 15"),
        ([{}, {}], "Parallel", "Member must satisfy enum value set"),
        ([{"ContainerHostname": "a"}, {}], "Serial", "for every container"),
        ([{"ContainerHostname": "a"}] * 2, "Serial", "must differ"),
        ([{"ContainerHostname": "a"}, {}], "Direct", "every container needs a ContainerHostname"),
        ([{"ContainerHostname": "a"}], "Direct", "more than one container"),
    ],
)
def test_what_does_not_go_together_is_refused(deploy, containers, mode, said):
    with pytest.raises(ClientError, match=said) as caught:
        deploy.sagemaker.create_model(
            ModelName="not-together",
            Containers=[{"Image": IMAGE, **one} for one in containers],
            InferenceExecutionConfig={"Mode": mode},
        )
    assert caught.value.response["Error"]["Code"] == "ValidationException"
