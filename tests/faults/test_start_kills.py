"""kill -9 while calls wait for an instance to start: each call gets exactly one answer."""

import contextlib
import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

import pytest

from support.deploy import Deployer, loads_when
from support.plain_http import ask
from support.processes import container_pids
from support.server import Server, eventually

CALLS = 4
AWAY = (HTTPException, OSError, ValueError)


@pytest.fixture(scope="module")
def deployer(make_server, make_deployer) -> Deployer:
    return make_deployer(make_server(serverless_idle_seconds="1"))


@pytest.fixture(scope="module")
def at_zero(deployer, module_gates) -> Callable[[str], Path]:
    """`at_zero(name)`: a serverless endpoint without instances; its model starts while the returned
    gate is there."""

    def make(name: str) -> Path:
        gate = module_gates / name
        gate.touch()
        deployer.model(name, loads_when(gate, 2.0))
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": name,
            "ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 2 * CALLS},
        }
        deployer.sagemaker.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=[variant]
        )
        deployer.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        assert deployer.settled(name)["EndpointStatus"] == "InService"
        eventually(lambda: not instances(deployer, name))
        gate.unlink()
        return gate

    return make


def instances(deployer: Deployer, name: str) -> list[dict[str, str]]:
    status = json.loads(deployer.server.get("/_sagehen/status"))
    (endpoint,) = (each for each in status["endpoints"] if each["name"] == name)
    return list(endpoint["variants"][0]["instances"])


def is_whole(server: Server) -> bool:
    """Both control and agent answer."""
    try:
        status = ask(f"{server.url}/_sagehen/status", headers=server.bearer)
    except AWAY:
        return False
    return status.status == 200 and {"control", "agent"} <= server.pids().keys()


def kill_control(server: Server) -> None:
    os.kill(server.pid("control"), signal.SIGKILL)


def kill_agent(server: Server) -> None:
    os.kill(server.pid("agent"), signal.SIGKILL)


def kill_instance(server: Server) -> None:
    for pid in container_pids(server.pid("agent")):
        with contextlib.suppress(ProcessLookupError):  # one of an earlier test, which is leaving
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("kill", [kill_control, kill_agent, kill_instance])
def test_held_calls_are_answered(deployer, at_zero, kill) -> None:
    name = kill.__name__.replace("_", "-")
    gate = at_zero(name)
    with ThreadPoolExecutor(CALLS) as pool:
        calls: list[Future[str]] = [pool.submit(deployer.invoke, name) for _ in range(CALLS)]
        eventually(lambda: container_pids(deployer.server.pid("agent")))
        kill(deployer.server)
        gate.touch()
        assert [call.result(120) for call in calls] == ["[2.0, 4.0]"] * CALLS
    eventually(lambda: is_whole(deployer.server))  # for the next test


def test_a_call_that_comes_while_control_is_away_is_answered(deployer, at_zero) -> None:
    at_zero("away").touch()
    pid = deployer.server.pid("control")
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(deployer.invoke, "away")
        os.kill(pid, signal.SIGKILL)
        assert call.result(120) == "[2.0, 4.0]"
