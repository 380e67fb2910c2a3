"""`/_sagehen/jobs/…`: capacity is taken back by whoever may ask for it."""

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sagehen.base.errors import Conflict, NotFound, Unavailable
from sagehen.services.sagemaker.training.own_paths import JobPaths

HOST = "http://127.0.0.1:9000"


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


@pytest.fixture
def client(interrupts):
    app = Starlette(routes=JobPaths(interrupts).routes)
    with TestClient(app, base_url=HOST) as client:
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


def test_it_is_not_done_by_looking(client):
    assert client.get("/_sagehen/jobs/interrupt").status_code == 405
