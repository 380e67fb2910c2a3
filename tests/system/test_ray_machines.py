"""`sagehen up --cluster ADDRESS` in a Ray cluster of two machines, one of which has no server."""

import pytest

from support.cluster import nodes_of
from support.deploy import Deployer
from support.machines import machines_network, shared_stores

pytest.importorskip("ray", reason="the ray extra is not installed")
pytestmark = [pytest.mark.ray, pytest.mark.slow]

RAY_ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_raylet_start_wait_time_s": "300",
}
SECONDS = 400
"""to start Ray's processes on a busy machine"""


@pytest.fixture
def network():
    with machines_network() as network:
        yield network


def nodes(machine):
    told = machine.run("sagehen", "cluster", "status", "--json")
    return {node["address"].partition(":")[0]: node for node in nodes_of(told).values()}


def test_a_machine_without_a_server_serves_until_its_power_goes(network, wait_until):
    head, worker = network.machine(1), network.machine(2)

    def start_ray(machine, *arguments):
        room = ("--num-cpus=8", f"--memory={64 * 2**30}", "--object-store-memory=100000000")
        command = ("ray", "start", *arguments, *room, "--block")
        machine.start(*command, log="ray.log", **RAY_ENVIRONMENT)
        log = machine.disk / "ray.log"
        wait_until(lambda: "Ray runtime started" in log.read_text(), SECONDS)

    start_ray(head, "--head", "--port=6379", "--include-dashboard=false")
    start_ray(worker, f"--address={head.address}:6379")
    with shared_stores() as stores:
        # Its users are on the head itself: it listens for them at 127.0.0.1.
        head.configure(cluster=f"{head.address}:6379", cluster_port=9001, **stores)
        head.up(**RAY_ENVIRONMENT)
        wait_until(lambda: sum(bool(node["pids"]) for node in nodes(head).values()) == 2, SECONDS)
        # The worker's gateway passes operations on to the control of the other machine.
        deploy = Deployer(head.seen_through(worker))
        assert deploy.endpoint("houses", InitialInstanceCount=2)["EndpointStatus"] == "InService"
        assert {deploy.invoke("houses") for _ in range(6)} == {"[2.0, 4.0]"}
        assert {at: len(node["instances"]) for at, node in nodes(head).items()} == {
            head.address: 1,
            worker.address: 1,
        }
        worker.power_off()
        wait_until(lambda: len(nodes(head)[head.address]["instances"]) == 2)
        assert not nodes(head)[worker.address]["pids"]
