"""Several gateways on one port, which know of each other only by the in-flight table."""

import concurrent.futures
import json
import os
import signal
import socket
import threading
import time

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from support.processes import CONTAINER_NAME

HELD = (
    CONTAINER_NAME
    + """
import json, time
from pathlib import Path

def model_fn(model_dir): return None
def input_fn(body, content_type): return json.loads(body)

def predict_fn(folder, model):
    if folder:
        Path(folder, "begun").touch()
        while not Path(folder, "go").exists():
            time.sleep(0.005)
    return container_name()
"""
)
CALLERS = 8


@pytest.fixture(scope="module")
def pair(make_server, make_deployer):
    """A deployer on a server of two gateways, with two instances that work until they are let."""
    deployer = make_deployer(make_server(gateways="2"))
    routing = {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}
    made = deployer.endpoint("held", HELD, InitialInstanceCount=2, RoutingConfig=routing)
    assert made["EndpointStatus"] == "InService"
    return deployer


def call(pair, endpoint: str = "held", folder: object = "") -> str:
    """Which instance answers, on a connection of its own, so that it comes to either gateway. With
    a folder, it is worked on until there is a file `go`."""
    client = pair.server.client("sagemaker-runtime")
    try:
        answer = client.invoke_endpoint(
            EndpointName=endpoint, Body=json.dumps(str(folder)), ContentType="application/json"
        )
        return str(answer["Body"].read().decode())
    finally:
        client.close()


def test_the_port_of_several_gateways_is_taken(pair):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", pair.server.port))


def test_each_gateway_sees_what_the_others_have_sent(pair, tmp_path, wait_until):
    assert len(pair.server.gateway_pids()) == 2
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for number in range(8):
            folder = tmp_path / str(number)
            folder.mkdir()
            first = pool.submit(call, pair, folder=folder)
            wait_until((folder / "begun").exists)
            # The first instance still works, whichever gateway sent the call there.
            second = call(pair)
            (folder / "go").touch()
            assert first.result() != second


def test_requests_wait_in_the_gateways_for_whichever_instance_frees_first(
    pair, tmp_path, wait_until
):
    """One slot each: short calls go around the long one, and each instance has one at a time."""
    environment = {"SAGEHEN_SLOTS": "1"}
    routing = {"RoutingStrategy": "RANDOM"}
    made = pair.endpoint("late", HELD, environment, InitialInstanceCount=2, RoutingConfig=routing)
    assert made["EndpointStatus"] == "InService"
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        long = pool.submit(call, pair, "late", tmp_path)
        wait_until((tmp_path / "begun").exists)
        short = list(pool.map(lambda _: call(pair, "late"), range(8)))
        assert not long.done()
        (tmp_path / "go").touch()
        assert {*short} == {short[0]}
        assert long.result() != short[0]


def test_a_killed_gateway_leaves_the_other_serving_and_comes_back(pair, wait_until):
    gateways = pair.server.gateway_pids()
    victim = min(gateways)
    ending = threading.Event()
    answered: list[float] = []
    failed: list[Exception] = []

    def keep_calling() -> None:
        while not ending.is_set():
            try:
                call(pair)
                answered.append(time.monotonic())
            except (ClientError, BotoCoreError) as error:
                failed.append(error)

    threads = [threading.Thread(target=keep_calling) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(answered) > 3 * CALLERS)
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: pair.server.gateway_pids() > gateways - {victim})
    back_at = time.monotonic()
    wait_until(lambda: sum(at > back_at for at in answered) > 5 * CALLERS)
    ending.set()
    for thread in threads:
        thread.join()
    # Lost are only those that were under way on the killed one.
    assert len(failed) <= CALLERS


def test_all_gateways_end_with_the_server(pair, wait_until):
    pids = pair.server.gateway_pids()
    assert pair.server.stop() == 0
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
