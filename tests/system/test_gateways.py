"""Several gateways on one port, which know of each other only by the board."""

import concurrent.futures
import os
import signal
import socket
import threading
import time

import pytest
from botocore.exceptions import BotoCoreError, ClientError

SLOW = """
import os, time

def model_fn(model_dir):
    return None

def predict_fn(data, model):
    time.sleep(float(data[0]))
    return [float(os.getppid())]
"""
CALLERS = 8


@pytest.fixture(scope="module")
def pair(make_server, make_deployer):
    """A deployer on a server of two gateways, with two instances that sleep as they are told."""
    deployer = make_deployer(make_server(gateways="2"))
    routing = {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}
    made = deployer.endpoint("slow", SLOW, InitialInstanceCount=2, RoutingConfig=routing)
    assert made["EndpointStatus"] == "InService"
    return deployer


def call(pair, seconds: float, endpoint: str = "slow") -> str:
    """One call on a connection of its own, so that it comes to either gateway."""
    client = pair.server.client("sagemaker-runtime")
    try:
        answer = client.invoke_endpoint(
            EndpointName=endpoint, Body=f"[{seconds}]", ContentType="application/json"
        )
        return str(answer["Body"].read().decode())
    finally:
        client.close()


def test_the_port_of_several_gateways_is_taken(pair):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", pair.server.port))


def test_each_gateway_sees_what_the_others_have_sent(pair):
    assert len(pair.server.gateway_pids()) == 2
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for _ in range(8):
            first = pool.submit(call, pair, 0.3)
            time.sleep(0.1)
            second = pool.submit(call, pair, 0.05)
            # The first instance still works, whichever gateway sent the call there.
            assert first.result() != second.result()


def test_requests_wait_in_the_gateways_for_whichever_instance_frees_first(pair):
    """One slot each: short calls go around the long one, and each instance has one at a time."""
    environment = {"SAGEHEN_SLOTS": "1"}
    routing = {"RoutingStrategy": "RANDOM"}
    made = pair.endpoint("late", SLOW, environment, InitialInstanceCount=2, RoutingConfig=routing)
    assert made["EndpointStatus"] == "InService"
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        long = pool.submit(call, pair, 4.0, "late")
        time.sleep(0.3)
        short = list(pool.map(lambda _: call(pair, 0.02, "late"), range(8)))
        assert not long.done()
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
                call(pair, 0.01)
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
