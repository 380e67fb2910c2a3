"""Nodes from Ray: a cluster that is there already, and `sagehen up --cluster local:3`."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support import cluster
from support.cluster import cluster_status
from support.deploy import Deployer
from support.server import children

pytest.importorskip("ray", reason="the ray extra is not installed")
pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def head(make_server):
    return make_server(cluster="local:3")


SECONDS = 400
"""to start and to replace Ray's processes on a busy machine"""


def ready(head):
    """The nodes that answer."""
    return {key for key, node in cluster_status(head).items() if node["pids"]}


def instances(head):
    return {key: set(node["instances"]) for key, node in cluster_status(head).items()}


def test_each_node_gets_an_agent_and_instances_outlive_a_node(head, wait_until):
    wait_until(lambda: len(ready(head)) == 3, SECONDS)
    deploy = Deployer(head)
    assert deploy.endpoint("houses", InitialInstanceCount=3)["EndpointStatus"] == "InService"
    before = instances(head)
    assert [len(each) for each in before.values()] == [1, 1, 1]
    pids = cluster_status(head)["node-127-0-0-3"]["pids"]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # It ends with the one that started it.
                os.kill(pid, number)
    wait_until(lambda: instances(head)["node-127-0-0-3"] == set())
    # The actor is gone with its processes: a new one takes its place, and new instances.
    wait_until(lambda: len(ready(head)) == 3, SECONDS)
    wait_until(lambda: len(set.union(*instances(head).values())) == 3, SECONDS)
    assert set.union(*before.values()) == set.union(*instances(head).values())


def test_everything_ends_with_the_server(head):
    everything = [*_below(head.process.pid)]
    assert head.stop() == 0
    _, alive = psutil.wait_procs(everything, timeout=60)
    assert not alive


def _below(pid):
    return [child for number in children(pid) for child in _tree(number)]


def _tree(pid):
    with contextlib.suppress(psutil.NoSuchProcess):  # It has ended since it was listed.
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    return []


class RayCluster:
    """Two nodes of Ray with four CPUs each, in a process of their own."""

    def __init__(self):
        program = Path(cluster.__file__).with_name("ray_cluster.py")
        self.process = subprocess.Popen(
            [sys.executable, str(program), "2", "4"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address = self.process.stdout.readline().strip()

    def groups(self):
        """State and hosts of each placement group."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(120)
        self.process.stdout.close()


@pytest.fixture
def ray_cluster():
    made = RayCluster()
    yield made
    made.close()


def test_what_runs_is_reserved_in_ray_and_what_waits_is_demand(
    ray_cluster, make_server, wait_until
):
    head = make_server(cluster=ray_cluster.address, host="127.0.0.22")
    wait_until(lambda: len(ready(head)) == 2, SECONDS)
    deploy = Deployer(head)
    assert deploy.endpoint("four", InitialInstanceCount=4)["EndpointStatus"] == "InService"
    wait_until(lambda: len(ray_cluster.groups()) == 4)
    wait_until(lambda: {each[0] for each in ray_cluster.groups().values()} == {"CREATED"})
    reserved = {key: host for key, (_, host) in ray_cluster.groups().items()}
    running = {
        key: node["address"].rpartition(":")[0]
        for node in cluster_status(head).values()
        for key in node["instances"]
    }
    assert reserved == running
    deploy.config("more")
    deploy.sagemaker.create_endpoint(EndpointName="more", EndpointConfigName="more")
    wait_until(lambda: "PENDING" in {each[0] for each in ray_cluster.groups().values()})

    def reasons():
        status = json.loads(head.get("/_sagehen/status"))
        (waiting,) = [each for each in status["endpoints"] if each["name"] == "more"]
        return [each["failure_reason"] for each in waiting["variants"][0]["instances"]]

    wait_until(lambda: "InsufficientInstanceCapacity" in str(reasons()))
    assert deploy.status("more") == "Creating"
    deploy.sagemaker.delete_endpoint(EndpointName="four")
    assert deploy.settled("more")["EndpointStatus"] == "InService"
    wait_until(lambda: [each[0] for each in ray_cluster.groups().values()] == ["CREATED"])
    assert head.stop() == 0
