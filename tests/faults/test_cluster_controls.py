"""Two servers of a cluster on one PostgreSQL and one S3: the one that leads is killed, and the
gateways of the one that stands by are heard."""

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil
import pytest

from support.cli import run_command
from support.cluster import ROOM, cluster_status
from support.deploy import Deployer, loads_when
from support.postgres import running_postgres
from support.server import eventually


@pytest.fixture(scope="module")
def shared(server):
    """Settings of the state and the objects that both servers share; `server` keeps the objects."""
    server.client("s3").create_bucket(Bucket="cluster")
    keys = server.env
    options = {
        "endpoint": server.url,
        "access_key_id": keys["AWS_ACCESS_KEY_ID"],
        "secret_access_key": keys["AWS_SECRET_ACCESS_KEY"],
        "region": "us-east-1",
        "virtual_hosted_style_request": "false",
    }
    with running_postgres() as url:
        yield {
            "cluster": "state",
            "database_url": url,
            "object_store_url": "s3://cluster/kept",
            "object_store_options": json.dumps(options),
            "serverless_idle_seconds": "2",
            **ROOM,
        }


@pytest.fixture(scope="module")
def pair(make_server, shared):
    first = make_server(**shared)
    token = run_command("cluster", "token", "--home", first.home).stdout.strip()
    second = make_server(**shared, cluster_token=token, host="127.0.0.2")
    return first, second


def kill_all(server):
    top = psutil.Process(server.process.pid)
    for each in [top, *top.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            each.send_signal(signal.SIGKILL)
    server.process.wait()


def test_another_control_takes_over_with_all_nodes(pair):
    first, second = pair
    eventually(lambda: sum(bool(node["pids"]) for node in cluster_status(first).values()) == 2)
    deploy = Deployer(first)
    assert deploy.endpoint("shared", InitialInstanceCount=2)["EndpointStatus"] == "InService"
    before = {key: node["instances"] for key, node in cluster_status(first).items()}
    assert [len(each) for each in before.values()] == [1, 1]
    there = Deployer(second)
    answer = deploy.invoke("shared")
    eventually(lambda: there.answers("shared", answer))  # a standby serves, too
    assert {key: node["instances"] for key, node in cluster_status(second).items()} == before
    own = (second.home / "cluster" / "node-id").read_text()
    (kept,) = before[own]

    kill_all(first)

    def serves_alone():
        nodes = cluster_status(second)
        return set(nodes[own]["instances"]) == {key for keys in before.values() for key in keys}

    eventually(serves_alone, 240)

    def is_in_service():
        status = json.loads(second.get("/_sagehen/status"))
        return status["endpoints"][0]["variants"][0]["in_service"] == 2

    eventually(is_in_service, 240)
    assert kept in cluster_status(second)[own]["instances"]

    eventually(lambda: there.answers("shared", answer))
    assert there.endpoint("later")["EndpointStatus"] == "InService"

    # The first comes back as a node, and stands by; with its start its gateways know the endpoints.
    first.start()
    assert Deployer(first).invoke("shared") == answer
    eventually(lambda: sum(bool(node["pids"]) for node in cluster_status(second).values()) == 2)


def leader_of(pair):
    """The server whose control leads, and the other one. The route table says where it is."""
    first, second = pair

    def of_leader():
        table = json.loads((first.home / "run" / "routes.json").read_bytes())
        leading = {key for key, node in table["nodes"].items() if node.get("control_address")}
        return [
            each
            for each in (first, second)
            if (each.home / "cluster" / "node-id").read_text() in leading
        ]

    found = []
    eventually(lambda: found.append(of_leader()) or len(found[-1]) == 1)
    (leader,) = found[-1]
    return leader, second if leader is first else first


def variant_of(server, endpoint):
    """What `sagehen status` says of an endpoint's variant."""
    told = []
    command = ("status", "--json", "--home", server.home)
    eventually(lambda: told.append(run_command(*command)) or told[-1].status == 0)
    shown = json.loads(told[-1].stdout)
    (found,) = [each for each in shown["endpoints"] if each["name"] == endpoint]
    return found["variants"][0]


def serverless_at_zero(server, name, script):
    deploy = Deployer(server)
    deploy.model(name, script)
    config = {"MemorySizeInMB": 1024, "MaxConcurrency": 4}
    variant = {"VariantName": "AllTraffic", "ModelName": name, "ServerlessConfig": config}
    deploy.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    deploy.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    assert deploy.settled(name)["EndpointStatus"] == "InService"
    eventually(lambda: not variant_of(server, name)["instances"])


def test_calls_at_a_standby_start_instances_and_keep_them(pair, module_gates):
    leader, standby = leader_of(pair)
    gate = module_gates / "loads"
    gate.touch()
    serverless_at_zero(leader, "asleep", loads_when(gate, 2.0))
    there = Deployer(standby)
    assert there.invoke("asleep") == "[2.0, 4.0]"
    # All servers show the calls of all; what a standby's gateways count is read by the leader.
    for server in pair:
        eventually(lambda server=server: variant_of(server, "asleep")["invocations"] == 1)
        metrics = server.get("/_sagehen/metrics").decode()
        assert 'sagehen_invocations_total{endpoint="asleep",variant="AllTraffic"} 1.0' in metrics
    eventually(lambda: not variant_of(leader, "asleep")["instances"])
    # So are their logs.
    logs = [run_command("logs", "asleep", "--home", server.home).stdout for server in pair]
    assert logs[0] == logs[1] != ""
    group = {"logGroupName": "/aws/sagemaker/Endpoints/asleep"}
    events = [server.client("logs").filter_log_events(**group)["events"] for server in pair]
    assert events[0] == events[1] != []

    # kill -9 of the leader's machine while a call waits at the other one.
    gate.unlink()
    with ThreadPoolExecutor() as pool:
        call = pool.submit(there.invoke, "asleep")
        eventually(lambda: variant_of(standby, "asleep")["instances"])
        kill_all(leader)
        eventually(lambda: leader_of((standby, leader))[0] is standby)
        assert not call.done()
        gate.touch()
        assert call.result() == "[2.0, 4.0]"
    leader.start()
