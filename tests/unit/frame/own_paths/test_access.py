"""Who may use the own paths: asked over ASGI, signed by botocore or with the token."""

import json
from datetime import UTC, datetime

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from sagehen.base.clock import SYSTEM
from sagehen.base.errors import AlreadyExists, Conflict, Invalid, NotFound, Unavailable
from sagehen.frame.asgi import BodyBudget
from sagehen.frame.own_paths.access import UNSIGNED, Access, Guard, Metrics, OwnSite, access_of
from sagehen.frame.own_paths.routes import json_answer, own_route
from sagehen.wire.signatures.sigv4 import Verifier

KEY, SECRET, TOKEN = "AKSHEXAMPLE", "secret", "a-token"
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

    return guarded([own_route("/_sagehen/things/{name}", {"GET": read, "PUT": put}, 100)])


def guarded(routes, *, listens_on="127.0.0.1", open_metrics=False, budget=2**28, base_url=HOST):
    guard = Guard(
        Starlette(routes=routes),
        Verifier({KEY: SECRET}, SYSTEM, "us-east-1"),
        TOKEN,
        OwnSite("https://sagehen.example", ["box"]),
        Metrics(listens_on, open_metrics),
        BodyBudget(budget),
    )
    return TestClient(guard, base_url=base_url)


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


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_the_token_is_as_good_as_a_signature(client, asked, scheme):
    headers = {"authorization": f"{scheme} {TOKEN}"}
    answer = client.get("/_sagehen/things/a?x=1", headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"name": "a"})
    assert dict(asked[0].query) == {"x": "1"}


@pytest.mark.parametrize(
    "given", ["Bearer ", "Bearer other", "Bearer a-tok", "Basic a-token", "a-token"]
)
def test_another_token_is_refused(client, asked, given):
    answer = client.get("/_sagehen/things/a", headers={"authorization": given})
    assert answer.status_code in (400, 403)
    assert answer.json()["message"]
    assert asked == []


def test_what_is_not_there_is_told_to_nobody_without_keys(client):
    assert client.get("/_sagehen/nothing").status_code == 403
    assert signed(client, path="/_sagehen/nothing").status_code == 404


def test_bodies_have_a_bound_together():
    client = guarded([own_route("/_sagehen/things", {"PUT": lambda _: {}})], budget=1000)
    assert signed(client, "PUT", "/_sagehen/things", bytes(1000)).status_code == 200
    assert signed(client, "PUT", "/_sagehen/things", bytes(1001)).status_code == 503
    assert signed(client, "PUT", "/_sagehen/things", bytes(1000)).status_code == 200


async def told(_):
    return json_answer({"told": True})


METRICS = [Route("/_sagehen/metrics", told)]
PROXIED = {"x-forwarded-for": "10.0.0.1"}


@pytest.mark.parametrize(
    ("listens_on", "host", "headers", "opened", "status"),
    [
        ("127.0.0.1", HOST, {}, False, 200),
        ("localhost", "http://localhost:9000", {}, False, 200),
        ("127.0.0.1", "http://evil.com:9000", {}, False, 403),
        ("127.0.0.1", "http://sagehen.example", {}, False, 403),
        ("127.0.0.1", HOST, PROXIED, False, 403),
        ("0.0.0.0", HOST, {}, False, 403),
        ("192.168.1.7", "http://192.168.1.7:9000", {}, False, 403),
        ("0.0.0.0", HOST, {"authorization": f"Bearer {TOKEN}"}, False, 200),
        ("0.0.0.0", "http://192.168.1.7:9000", {}, True, 200),
        ("0.0.0.0", "http://box:9000", PROXIED, True, 200),
        ("0.0.0.0", "http://evil.com:9000", {}, True, 403),
        ("0.0.0.0", "http://evil.com:9000", {"authorization": f"Bearer {TOKEN}"}, False, 200),
    ],
)
def test_who_may_read_metrics(listens_on, host, headers, opened, status):
    client = guarded(METRICS, listens_on=listens_on, open_metrics=opened, base_url=host)
    assert client.get("/_sagehen/metrics", headers=headers).status_code == status


@pytest.mark.parametrize(
    ("more", "is_open"),
    [
        ({"host": "127.0.0.1:9000"}, True),
        ({"host": "localhost", "user-agent": "curl/8", "accept": "*/*"}, True),
        (
            {
                "host": "localhost",
                "user-agent": "Prometheus/3",
                "accept": "text/plain",
                "accept-encoding": "gzip",
                "x-prometheus-scrape-timeout-seconds": "10",
            },
            True,
        ),
        ({}, False),
        ({"host": "localhost", "via": "1.1 proxy"}, False),
        ({"host": "localhost", "forwarded": "for=10.0.0.1"}, False),
        ({"host": "localhost", "x-real-ip": "10.0.0.1"}, False),
        ({"host": "localhost", "x-forwarded-proto": "https"}, False),
        ({"host": "localhost", "x-forwarded-host": "sagehen.example"}, False),
        ({"host": "localhost", "x_forwarded_for": "10.0.0.1"}, False),
        ({"host": "localhost", "cf-connecting-ip": "10.0.0.1"}, False),
        ({"host": "localhost", "true-client-ip": "10.0.0.1"}, False),
        ({"host": "localhost", "x-client-ip": "10.0.0.1"}, False),
        ({"host": "localhost", "origin": "http://evil.com"}, False),
    ],
)
def test_metrics_are_open_to_this_machine_and_not_through_a_proxy_on_it(more, is_open):
    assert Metrics("127.0.0.1", open=False).are_open_to(more) is is_open


def test_a_certificate_is_for_anyone_who_asks_this_server():
    routes = [Route("/_sagehen/sns/{name}", told)]
    assert guarded(routes).get("/_sagehen/sns/a.pem").status_code == 200
    refused = guarded(routes, base_url="http://evil.com").get("/_sagehen/sns/a.pem")
    assert refused.status_code == 403
    assert "allowed_hosts" in refused.json()["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/_sagehen/",
        "/_sagehen/status",
        "/_sagehen/health/",
        "/_sagehen/healthy",
        "/_sagehen/metrics/x",
        "/_sagehen/snsx",
        "/_sagehen/async/e/pause",
        "/_sagehen//health",
    ],
)
def test_keys_are_needed_by_default(path):
    assert access_of(path) is Access.KEYS


def test_what_needs_no_keys_is_this_and_no_more():
    assert {path: access.name for path, access in UNSIGNED.items()} == {
        "/_sagehen/health": "HEALTH",
        "/_sagehen/metrics": "METRICS",
        "/_sagehen/sns/": "PUBLIC",
        "/_sagehen/internal/": "INTERNAL",
    }


def test_a_method_that_is_not_taken(client):
    assert signed(client, "DELETE").status_code == 405
