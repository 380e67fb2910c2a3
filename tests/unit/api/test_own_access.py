"""Own paths that need the account's keys, asked over ASGI, signed by botocore."""

import json
from datetime import UTC, datetime

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sagehen.api.signed_paths import signed_route
from sagehen.clock import SYSTEM
from sagehen.errors import AlreadyExists, Conflict, Invalid, NotFound, Unavailable
from sagehen.wire.sigv4 import Verifier

KEY, SECRET = "AKSHEXAMPLE", "secret"
HOST = "http://127.0.0.1:9000"


@pytest.fixture
def asked():
    """What the handler was called with."""
    return []


@pytest.fixture
def client(asked):
    def read(request):
        asked.append(request)
        return {"name": request.path["name"]}

    def put(request):
        raise {"there": AlreadyExists, "other": Conflict, "bad": Invalid, "no": NotFound}.get(
            request.path["name"], Unavailable
        )("because")

    verifier = Verifier({KEY: SECRET}, SYSTEM, "us-east-1")
    route = signed_route(verifier, "/_sagehen/things/{name}", {"GET": read, "PUT": put}, 100)
    return TestClient(Starlette(routes=[route]), base_url=HOST)


def signed(client, method="GET", path="/_sagehen/things/a", body=b"", **wrong):
    chosen = {"secret": SECRET, "service": "execute-api", "region": "us-east-1"} | wrong
    request = AWSRequest(method=method, url=HOST + path, data=body)
    request.context["timestamp"] = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    credentials = Credentials(KEY, chosen["secret"])
    SigV4Auth(credentials, chosen["service"], chosen["region"]).add_auth(request)
    return client.request(method, path, content=body, headers=dict(request.headers))


def test_a_signed_request_is_handed_on(client, asked):
    answer = signed(client, path="/_sagehen/things/a%20b?x=1&y=2")
    assert (answer.status_code, answer.json()) == (200, {"name": "a b"})
    (request,) = asked
    assert (request.method, dict(request.query), request.body) == ("GET", {"x": "1", "y": "2"}, b"")


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"secret": "guessed"}, "InvalidSignatureException"),
        ({"service": "sagemaker"}, "InvalidSignatureException"),
        ({"region": "eu-west-1"}, "InvalidSignatureException"),
    ],
)
def test_a_wrong_signature_is_refused(client, asked, wrong, code):
    answer = signed(client, **wrong)
    assert (answer.status_code, answer.headers["x-amzn-errortype"]) == (403, code)
    assert answer.json()["message"]
    assert asked == []


def test_no_signature_is_refused(client, asked):
    answer = client.get("/_sagehen/things/a")
    assert answer.status_code == 403
    assert "sagehen env" in answer.json()["message"]
    assert asked == []


def test_a_body_that_is_not_the_signed_one_is_refused(client):
    request = AWSRequest(method="PUT", url=f"{HOST}/_sagehen/things/there", data=b"one")
    SigV4Auth(Credentials(KEY, SECRET), "execute-api", "us-east-1").add_auth(request)
    headers = dict(request.headers)
    answer = client.put("/_sagehen/things/there", content=b"two", headers=headers)
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("name", "status"), [("there", 409), ("other", 409), ("bad", 400), ("no", 404), ("else", 503)]
)
def test_our_errors_have_statuses(client, name, status):
    answer = signed(client, "PUT", f"/_sagehen/things/{name}", b"{}")
    assert (answer.status_code, answer.json()) == (status, {"message": "because"})


def test_a_body_has_a_bound(client):
    answer = signed(client, "PUT", "/_sagehen/things/there", b"x" * 101)
    assert (answer.status_code, json.loads(answer.content)) == (
        400,
        {"message": "The body may have 100 bytes at most."},
    )


def test_a_method_that_is_not_taken(client):
    assert signed(client, "DELETE").status_code == 405
