"""InvokeEndpointAsync with a real boto3 client of a real server: what is taken, and what is not."""

import json
import uuid

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from sagehen.app.cli import app
from support.asynchronous import BUCKET, AsyncEndpoint
from support.deploy import DOUBLE
from support.plain_http import ask


@pytest.fixture(scope="module")
def endpoint(deploy):
    """Its queue is paused, so that what is asked stays as it was asked."""
    endpoint = AsyncEndpoint(deploy, "asked", S3FailurePath=f"s3://{BUCKET}/asked/failed/")
    assert endpoint.described["EndpointStatus"] == "InService"
    endpoint.ask("/pause", "POST")
    return endpoint


def refusal(endpoint, **params):
    with pytest.raises(endpoint.deploy.runtime.exceptions.ValidationError) as caught:
        endpoint.invoke(**params)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    return caught.value.response["Error"]["Message"]


def test_the_answer(endpoint):
    answer = endpoint.invoke(InferenceId="mine")
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 202
    assert answer["ResponseMetadata"]["RequestId"]
    assert answer["InferenceId"] == "mine"
    prefix = f"s3://{BUCKET}/asked"
    stem = answer["OutputLocation"].removeprefix(f"{prefix}/out/").removesuffix(".out")
    assert str(uuid.UUID(stem)) == stem
    assert answer["FailureLocation"] == f"{prefix}/failed/{stem}-error.out"


def test_what_is_asked_is_what_is_queued(endpoint):
    endpoint.invoke(
        InferenceId="told",
        InputLocation="s3://answers/in.json",
        Accept="text/csv",
        RequestTTLSeconds=60,
        InvocationTimeoutSeconds=3600,
        S3OutputPathExtension="a/b",
        Filename="x.json",
    )
    told = endpoint.request("told")
    assert told["expires_at"] - told["received_at"] == 60
    assert told["timeout_seconds"] == 3600
    assert told["input_location"] == "s3://answers/in.json"
    assert told["output_location"] == f"s3://{BUCKET}/asked/out/a/b/x.json"
    assert told["failure_location"] == f"s3://{BUCKET}/asked/failed/a/b/x-error.json"
    assert (told["state"], told["attempts"]) == ("QUEUED", 0)


def test_an_inference_id_is_made_where_none_is_given(endpoint):
    made = endpoint.invoke()["InferenceId"]
    assert str(uuid.UUID(made)) == made
    assert endpoint.request(made)["state"] == "QUEUED"


@pytest.mark.parametrize("given", ["a b", "a/b", "..", "../../../etc/passwd", "é", "a?b#c%2F"])
def test_an_inference_id_is_a_label_and_never_a_path(endpoint, given):
    answer = endpoint.invoke(InferenceId=given)
    assert answer["InferenceId"] == given
    assert endpoint.request(given)["inference_id"] == given
    assert ".." not in answer["OutputLocation"]
    assert str(uuid.UUID(answer["OutputLocation"].rpartition("/")[2].removesuffix(".out")))


def test_an_inference_id_may_come_twice(endpoint):
    locations = {endpoint.invoke(InferenceId="twice")["OutputLocation"] for _ in range(2)}
    assert len(locations) == 2
    assert len(endpoint.ask("/requests/twice")["requests"]) == 2


def test_an_inline_body_up_to_its_limit(endpoint):
    assert endpoint.invoke(Body=bytes(128_000))["ResponseMetadata"]["HTTPStatusCode"] == 202
    assert "Body has more than 128000 bytes" in refusal(endpoint, Body=bytes(128_001))
    assert "Body has more than 128000 bytes" in refusal(endpoint, Body=bytes(3_000_000))


def test_either_a_body_or_an_input_location(endpoint):
    assert "has both" in refusal(endpoint, Body=b"1", InputLocation="s3://answers/in")
    assert "has neither" in refusal(endpoint, Body=b"")


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("InferenceId", "x" * 65),
        ("InferenceId", "x\u00e9"),
        ("InputLocation", "http://bucket/key"),
        ("InputLocation", "bucket/key"),
        ("InputLocation", "s3://bucket"),
        ("InputLocation", "https://example.org/key"),
        ("InputLocation", "s3://b/" + "x" * 1024),
        ("S3OutputPathExtension", "s3://other/place"),
        ("S3OutputPathExtension", "a b"),
        ("S3OutputPathExtension", "a/../b"),
        ("S3OutputPathExtension", "x" * 513),
        ("Filename", "a/b"),
        ("Filename", "a.b.c"),
        ("Filename", ".."),
        ("Filename", "x" * 33),
        ("RequestTTLSeconds", 21601),
        ("InvocationTimeoutSeconds", 3601),
        ("ContentType", "x" * 1025),
        ("Accept", "x" * 1025),
        ("CustomAttributes", "x" * 1025),
    ],
)
def test_values_that_are_refused(endpoint, member, value):
    before = endpoint.ask()["queued"]
    said = refusal(endpoint, **{member: value})
    assert member.lower() in said.lower()
    assert endpoint.ask()["queued"] == before


def test_endpoints_that_are_not_there(endpoint, deploy):
    assert refusal(endpoint, EndpointName="nowhere").endswith("not found.")
    assert refusal(endpoint, EndpointName="ASKED").endswith("not found.")


def test_who_does_not_sign_or_signs_with_another_key_is_refused(endpoint, server):
    url = f"{server.url}/endpoints/asked/async-invocations"
    unsigned = ask(url, b"[1]")
    assert unsigned.status == 403
    assert unsigned.headers["x-amzn-ErrorType"] == "MissingAuthenticationTokenException"
    stranger = server.client("sagemaker-runtime")
    stranger._request_signer._credentials.secret_key = "another"
    with pytest.raises(ClientError) as refused:
        stranger.invoke_endpoint_async(EndpointName="asked", Body=b"[1]")
    assert refused.value.response["Error"]["Code"] == "InvalidSignatureException"


def test_an_object_may_lie_in_a_bucket_called_endpoints(deploy):
    deploy.s3.create_bucket(Bucket="endpoints")
    key = "asked/async-invocations"
    upload = deploy.s3.create_multipart_upload(Bucket="endpoints", Key=key)
    listed = deploy.s3.list_multipart_uploads(Bucket="endpoints")["Uploads"]
    assert [one["UploadId"] for one in listed] == [upload["UploadId"]]
    deploy.s3.abort_multipart_upload(Bucket="endpoints", Key=key, UploadId=upload["UploadId"])
    assert "Uploads" not in deploy.s3.list_multipart_uploads(Bucket="endpoints")


LIMITED = """
import time

def model_fn(model_dir): return None
def input_fn(body, content_type): return body
def output_fn(answer, accept): return answer

def predict_fn(body, model):
    if body == b"slow":
        time.sleep(60)
    return bytes(1001) if body == b"long" else str(len(body)).encode()
"""


def test_the_containers_variables_take_effect(deploy):
    """Those of SageMaker's guide: larger than the default, and smaller."""
    environment = {
        "MMS_MAX_REQUEST_SIZE": "30000000",
        "MMS_MAX_RESPONSE_SIZE": "1000",
        # A busy machine needs seconds for the large body.
        "MMS_DEFAULT_RESPONSE_TIMEOUT": "4",
    }
    endpoint = AsyncEndpoint(deploy, "limited", LIMITED, environment)
    body = bytes(27_000_000)
    deploy.s3.put_object(Bucket=BUCKET, Key="large", Body=body)
    asked = {
        name: endpoint.invoke(InferenceId=name, ContentType="application/octet-stream", **given)
        for name, given in {
            "large": {"InputLocation": f"s3://{BUCKET}/large"},
            "long": {"Body": b"long"},
            "slow": {"Body": b"slow"},
        }.items()
    }
    assert endpoint.ended("large")["state"] == "SUCCEEDED"
    assert endpoint.read(asked["large"]["OutputLocation"]) == str(len(body)).encode()
    for name in ("long", "slow"):
        ended = endpoint.ended(name)
        assert (ended["state"], ended["container_status"]) == ("FAILED", 500)


@pytest.fixture(scope="module")
def working(deploy):
    """One that works on what it gets; a word that is no JSON fails."""
    failed = f"s3://{BUCKET}/working/failed"
    endpoint = AsyncEndpoint(deploy, "working", DOUBLE, S3FailurePath=failed)
    assert endpoint.described["EndpointStatus"] == "InService"
    return endpoint


def sagehen(server, *arguments):
    """What `sagehen async …` prints, and its exit status."""
    done = CliRunner().invoke(app, ["async", *arguments, "--home", str(server.home)])
    return done.exit_code, done.output


def test_pause_cancel_resume(working, server):
    assert sagehen(server, "pause", "working")[1].startswith("working is PAUSED: ")
    for name in ("kept", "dropped"):
        working.invoke(InferenceId=name)
    code, said = sagehen(server, "status", "working", "dropped")
    assert (code, said.splitlines()[:2]) == (0, ["dropped QUEUED", "  position: 1"])
    assert "to be cancelled" in sagehen(server, "cancel", "working", "dropped")[1]
    assert working.ended("dropped")["state"] == "CANCELLED"
    assert working.request("kept")["state"] == "QUEUED"
    assert sagehen(server, "resume", "working")[0] == 0
    assert working.ended("kept")["state"] == "SUCCEEDED"
    assert sagehen(server, "cancel", "working", "kept")[0] == 1


def test_failures_are_listed_and_redriven(working, server):
    answer = working.invoke(InferenceId="no json", Body=b"{")
    assert working.ended("no json")["state"] == "FAILED"
    assert "no json FAILED" in sagehen(server, "failures", "working")[1]
    listed = json.loads(sagehen(server, "failures", "working", "--json")[1])["failures"]
    assert "no json" in [one["inference_id"] for one in listed]
    assert working.read(answer["FailureLocation"])
    assert sagehen(server, "redrive", "working", "no json") == (0, "1 queued again.\n")
    again = working.ended("no json")
    assert (again["state"], again["redrives"]) == ("FAILED", 1)
    assert "Give either" in sagehen(server, "redrive", "working")[1]


def test_a_drained_endpoint_takes_nothing_until_it_is_resumed(working, server):
    assert sagehen(server, "drain", "working", "--wait")[0] == 0
    with pytest.raises(ClientError, match="is being drained") as caught:
        working.invoke()
    assert caught.value.response["Error"]["Code"] == "ServiceUnavailable"
    sagehen(server, "resume", "working")
    working.invoke(InferenceId="again")
    assert working.ended("again")["state"] == "SUCCEEDED"


def test_what_the_command_line_cannot_find(server):
    assert sagehen(server, "status", "nowhere") == (1, "sagehen: There is no endpoint nowhere.\n")
    code, said = sagehen(server, "status", "working", "..")
    assert (code, said.startswith("sagehen: Endpoint working has no request ..;")) == (1, True)
