"""Nodes of a cluster that are killed, or stop, while requests go to their instances."""

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from support.node_processes import Cluster

SCRIPT = """
import os, time

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    # Whatever has begun is known, also if this process is killed.
    with open(os.environ["BEGUN"], "ab", buffering=0) as file:
        file.write(b"%b %d\\n" % (body, os.getppid()))
    time.sleep(0.02)
    return body, "text/plain"
"""
CALLERS = 6
BACK_SECONDS = 15
"""generous: some 3 s on a machine that has nothing else to do"""


class Calls:
    """Callers who call one gateway one after the other, and what came back."""

    def __init__(self, cluster: Cluster, node: int, gateway: int = 0) -> None:
        self._cluster = cluster
        self._node = node
        self._gateway = gateway
        self._ending = threading.Event()
        self._pool = ThreadPoolExecutor(CALLERS)
        self.answered: list[tuple[float, str]] = []
        self.failed: list[tuple[float, str, str]] = []
        """when the call began, its body, and its error's code"""
        self._calling = [self._pool.submit(self._call, caller) for caller in range(CALLERS)]

    def _call(self, caller: int) -> None:
        client = self._cluster.client(self._node, self._gateway)
        number = 0
        while not self._ending.is_set():
            body = f"{self._node}-{self._gateway}-{caller}-{number}"
            number += 1
            began = time.monotonic()
            try:
                answer = client.invoke_endpoint(EndpointName="price", Body=body)
                assert answer["Body"].read().decode() == body
                self.answered.append((time.monotonic(), body))
            except ClientError as error:
                self.failed.append((began, body, error.response["Error"]["Code"]))
            except BotoCoreError:
                break  # the gateway is gone
        client.close()

    def end(self) -> None:
        self._ending.set()
        for calling in self._calling:
            calling.result()
        self._pool.shutdown()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three nodes; the first has no instance, the others two each."""
    cluster = Cluster(3)
    try:
        cluster.start()
        addresses = [
            (node, cluster.nodes[node].add_model(SCRIPT, BEGUN=str(begun_file(cluster))))
            for node in (1, 1, 2, 2)
        ]
        cluster.route(*addresses)
        yield cluster
    finally:
        cluster.end()


@pytest.fixture
def doubled() -> Iterator[Cluster]:
    """Two nodes with two gateways each; the second has both instances."""
    cluster = Cluster(2, gateways=2)
    try:
        cluster.start()
        variable = str(begun_file(cluster))
        addresses = [(1, cluster.nodes[1].add_model(SCRIPT, BEGUN=variable)) for _ in range(2)]
        cluster.route(*addresses)
        yield cluster
    finally:
        cluster.end()


def begun_file(cluster: Cluster) -> Path:
    return cluster.nodes[0].folder / "begun"


def begun(cluster: Cluster) -> Counter[str]:
    """Returns how often the model was called with each body."""
    return Counter(line.split()[0] for line in begun_file(cluster).read_text().splitlines())


def served_by(cluster: Cluster, pids: set[str]) -> list[str]:
    """Returns what was begun by workers of these model servers."""
    lines = begun_file(cluster).read_text().splitlines()
    return [line for line in lines if line.split()[1] in pids]


def test_a_killed_node_costs_only_what_it_had_begun(cluster, wait_until):
    calls = Calls(cluster, 0)
    wait_until(lambda: len(calls.answered) > 100)
    killed_at = time.monotonic()
    cluster.nodes[1].signal(signal.SIGKILL)
    before = len(calls.answered)
    wait_until(lambda: len(calls.answered) > before + 100)
    calls.end()
    times = begun(cluster)
    assert set(times.values()) == {1}, "nothing is done twice"
    assert set(times) >= {body for _, body in calls.answered}
    # Each of the two instances held one request, and the next one may have been on its way.
    assert len(calls.failed) <= 4, calls.failed
    assert all(began < killed_at + BACK_SECONDS for began, _, _ in calls.failed)
    assert {code for _, _, code in calls.failed} <= {"ModelError"}


def test_a_killed_gateway_of_callers_leaves_the_instances_to_others(cluster, wait_until):
    others = Calls(cluster, 2)
    calls = Calls(cluster, 1)
    wait_until(lambda: len(calls.answered) > 50 and len(others.answered) > 50)
    cluster.nodes[1].gateways[0].send_signal(signal.SIGKILL)
    cluster.nodes[1].gateways[0].wait()
    before = len(others.answered)
    wait_until(lambda: len(others.answered) > before + 100)
    for each in (calls, others):
        each.end()
    # The killed gateway was also the way to its node's two instances.
    assert len(others.failed) <= 4
    assert set(begun(cluster).values()) == {1}


def test_a_stopped_node_is_left_out_within_seconds_and_comes_back(cluster, wait_until):
    calls = Calls(cluster, 0)
    wait_until(lambda: len(calls.answered) > 100)
    stopped_at = time.monotonic()
    cluster.nodes[1].signal(signal.SIGSTOP)
    # What the stopped node holds ends when its link is cut; then everybody calls the other one.
    wait_until(lambda: calls.failed)
    noticed_after = time.monotonic() - stopped_at
    before = len(calls.answered)
    wait_until(lambda: len(calls.answered) > before + 100)
    last_failed = max(began for began, _, _ in calls.failed)
    assert last_failed - stopped_at < BACK_SECONDS, "no call that began later was lost"
    cluster.nodes[1].signal(signal.SIGCONT)
    before = begun(cluster)
    served = Counter()

    def is_back() -> bool:
        nonlocal served
        served = begun(cluster) - before
        return (
            len(calls.answered) > 0
            and any(each.poll() is None for each in cluster.nodes[1].servers)
            and sum(served.values()) > 100
        )

    wait_until(is_back)
    calls.end()
    assert noticed_after < 2 * BACK_SECONDS
    assert set(begun(cluster).values()) == {1}


def test_several_gateways_of_a_node_share_its_port_for_others(doubled, wait_until):
    """Each of them calls instances of the other node, and any of that node's takes the calls."""
    calls = {
        (node, gateway): Calls(doubled, node, gateway) for node in (0, 1) for gateway in (0, 1)
    }
    wait_until(lambda: all(len(each.answered) > 30 for each in calls.values()))
    assert not any(each.failed for each in calls.values())
    # Links that ended at the killed one are opened again, and the other takes them.
    doubled.nodes[1].gateways[0].send_signal(signal.SIGKILL)
    calls.pop((1, 0)).end()
    # Only the next one with its number knows the slots as free that it had taken.
    doubled.nodes[1].restart_gateway(0)
    before = {key: len(each.answered) for key, each in calls.items()}
    wait_until(lambda: all(len(each.answered) > before[key] + 30 for key, each in calls.items()))
    for each in calls.values():
        each.end()
    failed = [failure for each in calls.values() for failure in each.failed]
    # What the killed gateway had sent to the two instances, and what was on its way.
    assert len(failed) <= 4, failed
    assert set(begun(doubled).values()) == {1}, "nothing is done twice"
