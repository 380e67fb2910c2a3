"""A small Ray cluster on this machine: `sagehen up --cluster local:3`."""

import signal

import psutil
import pytest

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
    for pid in pids:
        psutil.Process(pid).send_signal(signal.SIGSTOP)
    for pid in pids:
        psutil.Process(pid).kill()
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
    top = psutil.Process(pid)
    return [top, *top.children(recursive=True)]
