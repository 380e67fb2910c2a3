"""The message by which gateways tell of calls that wait."""

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sagehen.services.sagemaker.hosting.demand import CallDemand
from sagehen.services.sagemaker.hosting.own_paths import start_route
from support.clock import HandClock

PATH = "/_sagehen/internal/starts"


@pytest.fixture
def demand() -> CallDemand:
    return CallDemand(HandClock(1_000_000.0), 300)


@pytest.fixture
def client(demand: CallDemand) -> TestClient:
    return TestClient(Starlette(routes=[start_route(demand)]))


def test_it_is_noted(client, demand):
    hints = []
    demand.hint = lambda: hints.append(1)
    waiting = {"endpoint": "e", "variant": "v", "calls": 3, "instances": 1}
    for _ in range(3):
        assert client.post(PATH, json={"waiting": [waiting]}).status_code == 204
    use = demand.of_endpoint("e", ["v"])["v"]
    assert (use.waiting, use.full_instances) == (3, 1)
    assert hints == [1]  # one look for all repetitions of a second


@pytest.mark.parametrize("body", [b"", b"[]", b'{"waiting": [{"endpoint": "e"}]}'])
def test_another_message_is_refused(client, body):
    assert client.post(PATH, content=body).status_code == 400
