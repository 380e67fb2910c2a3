"""kill -9 of an instance, a gateway and the agent with many requests on their links: each caller
gets one answer, and no request is run twice."""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from sagehen.gateway.routing.inflight import CELL_BYTES, ROW_BYTES
from support.processes import CONTAINER_NAME, container_pid
from support.server import eventually

CALLS = 24
WORKERS = 2
SCRIPT = (
    CONTAINER_NAME
    + """
import json, os, time
from pathlib import Path

def model_fn(model_dir): return None
def input_fn(body, content_type): return json.loads(body)

def predict_fn(call, model):
    folder, number = call
    line = f"{number} {container_name()}\\n".encode()
    file = os.open(f"{folder}/begun", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line)
    os.close(file)
    while not os.path.exists(f"{folder}/go"):
        time.sleep(0.005)
    return container_name()
"""
)
ENVIRONMENT = {"SAGEHEN_SLOTS": "64", "SAGEMAKER_MODEL_SERVER_WORKERS": str(WORKERS)}


@pytest.fixture(scope="module")
def deployer(make_server, make_deployer):
    """On a server of two gateways; an endpoint of two instances, with two workers each."""
    deployer = make_deployer(make_server(gateways="2"))
    routing = {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}
    made = deployer.endpoint(
        "linked", SCRIPT, ENVIRONMENT, InitialInstanceCount=2, RoutingConfig=routing
    )
    assert made["EndpointStatus"] == "InService"
    return deployer


@dataclass
class Outcome:
    """What one caller got."""

    status: int
    """0: its connection was lost"""
    answer: Any = None


class Calls:
    """Calls that hang in two containers: as many as there are workers have begun, others wait."""

    def __init__(self, deployer, folder: Path, pool: ThreadPoolExecutor) -> None:
        self._deployer = deployer
        self._folder = folder
        self._futures: list[Future[Outcome]] = [
            pool.submit(self._call, number) for number in range(CALLS)
        ]
        eventually(lambda: len(self.begun) == 2 * WORKERS)
        eventually(lambda: self._in_flight() == CALLS)
        self.begun_before = self.begun

    @property
    def begun(self) -> list[tuple[int, str]]:
        """Numbers, and the containers that began them."""
        path = self._folder / "begun"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(line.split()[0]), line.split()[1]) for line in lines]

    @property
    def begun_in(self) -> dict[str, set[int]]:
        """Before anything was killed."""
        containers = {container for _, container in self.begun_before}
        return {
            one: {number for number, container in self.begun_before if container == one}
            for one in containers
        }

    def outcomes(self) -> list[Outcome]:
        """After they are let go."""
        (self._folder / "go").touch()
        return [future.result(timeout=120) for future in self._futures]

    @property
    def times_begun(self) -> Counter[int]:
        return Counter(number for number, _ in self.begun)

    def _call(self, number: int) -> Outcome:
        """On a connection of its own, so that it comes to either gateway."""
        client = self._deployer.server.client("sagemaker-runtime")
        try:
            answer = client.invoke_endpoint(
                EndpointName="linked",
                Body=json.dumps([str(self._folder), number]),
                ContentType="application/json",
            )
            return Outcome(200, json.loads(answer["Body"].read()))
        except ClientError as error:
            return Outcome(error.response["ResponseMetadata"]["HTTPStatusCode"], error.response)
        except BotoCoreError as error:
            return Outcome(0, error)
        finally:
            client.close()

    def _in_flight(self) -> int:
        """As the gateways count them together; they are sent at once, as slots are free."""
        table = (self._deployer.server.home / "run" / "board").read_bytes()
        return in_flight(table)


def in_flight(table: bytes) -> int:
    """The sum of the counts in the shared table, whatever their columns are."""
    cells = memoryview(table).cast("q")
    row = ROW_BYTES // CELL_BYTES
    return sum(sum(cells[start : start + row // 2]) for start in range(0, len(cells), row))


@pytest.fixture
def calls(deployer, gates, wait_until):
    serves(deployer, gates / "before", wait_until)
    with ThreadPoolExecutor(CALLS) as pool:
        calls = Calls(deployer, gates, pool)
        yield calls
        (gates / "go").touch()


def serves(deployer, folder: Path, wait_until: Callable[..., None]) -> None:
    """Waits until both instances answer."""
    folder.mkdir()
    (folder / "go").touch()
    seen: list[str] = []

    def both() -> bool:
        try:
            seen.append(json.loads(deployer.invoke("linked", json.dumps([str(folder), 0]))))
        except (ClientError, BotoCoreError):
            return False
        return len(set(seen[-6:])) == 2

    wait_until(both)


def test_a_killed_instance(deployer, calls, wait_until):
    """Begun requests get ModelError; those that waited in the container, the other's answer."""
    victim, other = calls.begun_in
    os.kill(container_pid(victim), signal.SIGKILL)
    wait_until(lambda: calls._in_flight() == CALLS - WORKERS)
    outcomes = calls.outcomes()
    lost = {number for number, outcome in enumerate(outcomes) if outcome.status != 200}
    assert lost == calls.begun_in[victim]
    assert {outcomes[number].status for number in lost} == {424}
    for number in lost:
        assert outcomes[number].answer["Error"]["Code"] == "ModelError"
    answered = {outcome.answer for outcome in outcomes if outcome.status == 200}
    assert victim not in answered
    assert calls.begun_in[other] <= {
        number for number, outcome in enumerate(outcomes) if outcome.answer == other
    }
    assert calls.times_begun == Counter(range(CALLS))


def test_a_killed_gateway(deployer, calls, wait_until):
    """Its callers lose their connections; what waited for them in containers is not run."""
    gateways = deployer.server.gateway_pids()
    os.kill(min(gateways), signal.SIGKILL)
    wait_until(lambda: calls._in_flight() < CALLS)
    wait_until(lambda: len(deployer.server.gateway_pids() - {min(gateways)}) == 2)
    outcomes = calls.outcomes()
    assert {outcome.status for outcome in outcomes} == {0, 200}
    begun_before = set().union(*calls.begun_in.values())
    for number, outcome in enumerate(outcomes):
        was_run = calls.times_begun[number]
        assert was_run == (1 if outcome.status == 200 or number in begun_before else 0)


def test_a_killed_agent(deployer, calls, wait_until):
    """Its instances end with it: begun requests get ModelError, others an answer or an error."""
    agent = deployer.server.pid("agent")
    os.kill(agent, signal.SIGKILL)
    wait_until(lambda: calls._in_flight() < CALLS)
    wait_until(lambda: deployer.server.pids().get("agent", agent) != agent)
    outcomes = calls.outcomes()
    begun_before = set().union(*calls.begun_in.values())
    for number, outcome in enumerate(outcomes):
        if number in begun_before:
            assert outcome.status == 424
        else:
            assert outcome.status in (200, 503), outcome
        assert calls.times_begun[number] == (outcome.status == 200 or number in begun_before)
