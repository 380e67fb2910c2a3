"""`/_sagehen/jobs/…`: capacity is taken back by whoever may ask for it."""

from datetime import UTC, datetime

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sagehen.api.training.job_paths import JobPaths
from sagehen.clock import SYSTEM
from sagehen.errors import Conflict, NotFound, Unavailable
from sagehen.wire.sigv4 import Verifier

HOST = "http://127.0.0.1:9000"
KEYS = ("AKSHEXAMPLE", "secret")


class Interrupts:
    """Knows one job; `fault` is raised of it."""

    def __init__(self):
        self.fault = None
        self.counts = []

    async def interrupt_job(self, name):
        if self.fault:
            raise self.fault
        if name != "a":
            raise NotFound(f"There is no training job {name}.")
        return "a"

    async def interrupt_spot_jobs(self, count):
        self.counts.append(count)
        return ["b", "c"][:count]


@pytest.fixture
def interrupts():
    return Interrupts()


class Signed(TestClient):
    """Signs what it posts."""

    def post(self, path, **more):
        request = AWSRequest(method="POST", url=f"{HOST}{path}")
        request.context["timestamp"] = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        SigV4Auth(Credentials(*KEYS), "execute-api", "us-east-1").add_auth(request)
        return super().post(path, headers=dict(request.headers), **more)


@pytest.fixture
def client(interrupts):
    verifier = Verifier(dict([KEYS]), SYSTEM, "us-east-1")
    app = Starlette(routes=JobPaths(verifier, interrupts).routes)
    with Signed(app, base_url=HOST) as client:
        yield client


def test_one_by_name(client, interrupts):
    answer = client.post("/_sagehen/jobs/a/interrupt")
    assert (answer.status_code, answer.json()) == (200, {"interrupted": ["a"]})


def test_some_or_all(client, interrupts):
    assert client.post("/_sagehen/jobs/interrupt").json() == {"interrupted": ["b", "c"]}
    assert client.post("/_sagehen/jobs/interrupt?count=1").json() == {"interrupted": ["b"]}
    assert client.post("/_sagehen/jobs/interrupt?count=0").json() == {"interrupted": []}
    assert interrupts.counts == [None, 1, 0]


@pytest.mark.parametrize("count", ["-1", "x", "10001", "", "1.5"])
def test_a_count_that_is_none(client, interrupts, count):
    answer = client.post(f"/_sagehen/jobs/interrupt?count={count}")
    assert answer.status_code == 400
    assert answer.json() == {"message": "count must be a number from 0 to 10000."}
    assert interrupts.counts == []


@pytest.mark.parametrize(
    ("fault", "status"), [(Conflict("It is not run."), 409), (Unavailable("Away."), 503)]
)
def test_why_it_cannot_be(client, interrupts, fault, status):
    interrupts.fault = fault
    answer = client.post("/_sagehen/jobs/a/interrupt")
    assert (answer.status_code, answer.json()) == (status, {"message": str(fault)})


@pytest.mark.parametrize("name", ["nowhere", "x" * 64, "%C3%A4", "interrupt"])
def test_a_job_that_is_not_there(client, name):
    answer = client.post(f"/_sagehen/jobs/{name}/interrupt")
    assert answer.status_code == 404
    assert "There is no training job" in answer.json()["message"]


@pytest.mark.parametrize("path", ["interrupt", "a/interrupt"])
def test_who_does_not_sign_may_not(client, interrupts, path):
    answer = TestClient.post(client, f"/_sagehen/jobs/{path}")
    assert answer.status_code == 403
    assert "interrupted" not in answer.json()
    assert interrupts.counts == []


def test_it_is_not_done_by_looking(client):
    assert client.get("/_sagehen/jobs/interrupt").status_code == 405
