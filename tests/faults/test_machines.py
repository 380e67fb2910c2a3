"""`sagehen up --cluster state` on three machines that share nothing but a network."""

import pytest

from support.cluster import nodes_of
from support.deploy import Deployer
from support.machines import machines_network, shared_stores


@pytest.fixture(scope="module")
def trio():
    """Three servers of a cluster; the first began it, the others have joined by its token."""
    with machines_network() as network, shared_stores() as stores:
        machines = [network.machine(number) for number in (1, 2, 3)]
        for each in machines:
            each.configure(cluster="state", host=each.address, **stores)
        first, *others = machines
        first.up()
        token = first.run("sagehen", "cluster", "token").strip()
        for each in others:
            each.up(wait=False, SAGEHEN_CLUSTER_TOKEN=token)
        for each in others:
            each.wait_until_up()
        yield machines


def nodes(machine):
    """What `sagehen cluster status` shows there, by the name of the machine."""
    told = machine.run("sagehen", "cluster", "status", "--json")
    return {key.rpartition("-")[0]: node for key, node in nodes_of(told).items()}


def instances(machine):
    return {key: set(node["instances"]) for key, node in nodes(machine).items()}


def test_an_endpoint_has_an_instance_on_each_and_is_served_by_each(trio, wait_until):
    wait_until(lambda: sum(bool(node["pids"]) for node in nodes(trio[2]).values()) == 3)
    deploy = Deployer(trio[1])
    assert deploy.endpoint("houses", InitialInstanceCount=3)["EndpointStatus"] == "InService"
    spread = instances(trio[0])
    assert [len(each) for each in spread.values()] == [1, 1, 1]
    assert set(spread) == {each.name for each in trio}
    for each in trio:
        there = Deployer(each)
        assert {there.invoke("houses") for _ in range(6)} == {"[2.0, 4.0]"}
