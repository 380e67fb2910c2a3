"""`sagehen up --cluster state` on three machines that share nothing but a network."""

from contextlib import suppress

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from sagehen.state import leader_row
from sagehen.state.database import Database
from support.cluster import ROOM, nodes_of
from support.deploy import Deployer
from support.machines import machines_network, shared_stores


@pytest.fixture(scope="module")
def network():
    with machines_network() as network:
        yield network


@pytest.fixture(scope="module")
def stores(network):
    with shared_stores() as stores:
        yield stores


@pytest.fixture(scope="module")
def trio(network, stores):
    """Three servers of a cluster; the first began it, the others have joined by its token. They
    find their own addresses."""
    machines = [network.machine(number) for number in (1, 2, 3)]
    for each in machines:
        each.configure(cluster="state", host="0.0.0.0", cluster_port=9001, **ROOM, **stores)
    first, *others = machines
    first.up()
    token = first.run("sagehen", "cluster", "token").strip()
    for each in others:
        each.up(wait=False, SAGEHEN_CLUSTER_TOKEN=token)
    for each in others:
        each.wait_until_up()
    return machines


@pytest.fixture
def leader_machine(stores):
    """Finds the machine whose control leads, if it is one of these."""
    database = Database(stores["database_url"])

    def find(machines):
        with database.read() as connection:
            look = leader_row.look_at(connection)
        if look is None or look.seconds <= 0:
            return None
        return next((each for each in machines if look.holder.startswith(f"{each.name}-")), None)

    yield find
    database.close()


def nodes(machine):
    """What `sagehen cluster status` shows there, by the name of the machine."""
    told = machine.run("sagehen", "cluster", "status", "--json")
    return {key.rpartition("-")[0]: node for key, node in nodes_of(told).items()}


def instances(machine):
    return {key: set(node["instances"]) for key, node in nodes(machine).items()}


def test_an_endpoint_has_an_instance_on_each_and_is_served_by_each(trio, wait_until):
    # By the leader: it may not have heard of all that others see.
    wait_until(lambda: sum(bool(node["pids"]) for node in nodes(trio[0]).values()) == 3)
    deploy = Deployer(trio[1])
    assert deploy.endpoint("houses", InitialInstanceCount=3)["EndpointStatus"] == "InService"
    spread = instances(trio[0])
    assert [len(each) for each in spread.values()] == [1, 1, 1]
    assert set(spread) == {each.name for each in trio}
    for each in trio:
        there = Deployer(each)
        assert {there.invoke("houses") for _ in range(6)} == {"[2.0, 4.0]"}


def serve_everywhere(machines):
    """Whether the endpoint has its three instances, and the gateways of the machines reach it."""
    told = nodes(machines[0]).values()
    if sum(len(node["instances"]) for node in told) != 3:
        return False
    with suppress(ClientError, BotoCoreError):
        return all(Deployer(each).invoke("houses") == "[2.0, 4.0]" for each in machines)
    return False


JOB = "job-that-never-ends"


def test_a_machine_without_its_network_runs_no_job_when_another_does(trio, wait_until):
    Deployer(trio[0]).training_job("long", "sh", "-c", f": {JOB}; sleep 3600; :", seconds=3600)

    def job_machines():
        return [each for each in trio if each.runs(JOB)]

    wait_until(job_machines)
    (cut_off,) = job_machines()
    rest = [each for each in trio if each is not cut_off]
    cut_off.unplug()

    def runs_elsewhere():
        there = job_machines()
        assert len(there) < 2, "the job runs twice"
        return there and there != [cut_off]

    wait_until(runs_elsewhere)
    (second,) = job_machines()
    wait_until(lambda: serve_everywhere(rest))
    told = cut_off.run("sagehen", "cluster", "status", check=False)
    assert "state cannot be reached" in told or "does not answer" in told, told
    cut_off.plug_in()
    wait_until(lambda: all(node["pids"] for node in nodes(rest[0]).values()))
    wait_until(lambda: serve_everywhere(trio))  # without the copies on the machine that is back
    assert job_machines() == [second]
    Deployer(rest[0]).sagemaker.stop_training_job(TrainingJobName="long")
    wait_until(lambda: not job_machines())


def test_a_leader_whose_power_goes_is_replaced_and_comes_back(trio, wait_until, leader_machine):
    first = leader_machine(trio)
    rest = [each for each in trio if each is not first]
    first.power_off()
    wait_until(lambda: leader_machine(rest) is not None)
    wait_until(lambda: serve_everywhere(rest))
    assert Deployer(rest[1]).endpoint("later")["EndpointStatus"] == "InService"
    Deployer(rest[0]).sagemaker.delete_endpoint(EndpointName="later")
    first.boot()
    first.up()
    wait_until(lambda: all(node["pids"] for node in nodes(rest[0]).values()))
    wait_until(lambda: serve_everywhere(trio))
