"""Two servers of a cluster on one PostgreSQL and one S3: the one that leads is killed, and the
gateways of the one that stands by are heard."""

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import psutil
import pytest
from botocore.exceptions import ClientError
from sqlalchemy import create_engine

from sagehen.app.backup import restore_backup, take_backup
from support.cli import run_command
from support.cluster import ROOM, cluster_status
from support.deploy import Deployer, loads_when
from support.newer_version import VERSION, make_newer_version
from support.plain_http import ask
from support.postgres import postgres_outage, running_postgres
from support.server import Server, eventually
from support.state import settings_of
from support.traffic import Balancer, traffic


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
            "cluster_leave_seconds": "120",
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


def on_both(deploy, server, name="shared"):
    """Makes the endpoint with an instance on each of two nodes; returns those of each.

    On a busy machine a node may just then count as lost, and the other gets both: then it is made
    once more.
    """
    deploy.config(name, InitialInstanceCount=2)
    for _ in range(5):
        deploy.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        assert deploy.settled(name)["EndpointStatus"] == "InService"
        on_nodes = {key: node["instances"] for key, node in cluster_status(server).items()}
        if [len(each) for each in on_nodes.values()] == [1, 1]:
            return on_nodes
        deploy.sagemaker.delete_endpoint(EndpointName=name)
        deploy.sagemaker.get_waiter("endpoint_deleted").wait(
            EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120}
        )
    raise AssertionError(f"The instances are on one node: {on_nodes}")


def control_logs(pair):
    return "".join((server.home / "logs" / "control.log").read_text() for server in pair)


def check_outage(pair):
    """Both servers say what is away, to those who have the token."""
    for server in pair:
        eventually(lambda server=server: "sagehen_database_up 0.0" in metrics(server))
        told = run_command("status", "--home", server.home)
        assert (told.status, "The state cannot be reached now: " in told.stderr) == (1, True)
        with pytest.raises(ClientError, match="The state cannot be reached now: ") as refused:
            server.client("sagemaker").list_models()
        assert refused.value.response["Error"]["Code"] == "ServiceUnavailable"
        health = ask(f"{server.url}/_sagehen/health")
        assert (health.status, b"sgh-pg" in health.body) == (503, False)


def metrics(server):
    return ask(f"{server.url}/_sagehen/metrics", headers=server.bearer).body.decode()


def test_no_instance_moves_when_the_database_is_back(pair, shared):
    """A leader that could not ask its nodes must not take them for lost."""
    first, second = pair
    eventually(lambda: sum(bool(node["pids"]) for node in cluster_status(first).values()) == 2)
    deploy = Deployer(first)
    before = on_both(deploy, first, "kept")
    eventually(lambda: Deployer(second).answers("kept", deploy.invoke("kept")))
    status = f"{first.url}/_sagehen/status"
    lost = control_logs(pair).count("A node is lost")
    with ExitStack() as stack:
        seen = [
            stack.enter_context(traffic(server.client("sagemaker-runtime"), "kept"))
            for server in pair
        ]
        for seconds in (5, 12):
            with postgres_outage(shared["database_url"]):
                until = time.monotonic() + seconds
                eventually(lambda until=until: time.monotonic() >= until)
                if seconds > 5:
                    check_outage(pair)
            eventually(lambda: ask(status, headers=first.bearer).status == 200)  # of the leader
            for each in seen:
                each.goes_on(200)
    assert [each.errors for each in seen] == [[], []]
    assert {key: node["instances"] for key, node in cluster_status(first).items()} == before
    assert control_logs(pair).count("A node is lost") == lost
    for server in pair:
        assert 'sagehen_nodes{state="ready"} 2.0' in metrics(server)
        assert metrics(server).count("sagehen_cluster_leader{node=") == 1
        assert "sagehen_database_up 1.0" in metrics(server)
    deploy.sagemaker.delete_endpoint(EndpointName="kept")
    eventually(lambda: not any(node["instances"] for node in cluster_status(first).values()))


def test_another_control_takes_over_with_all_nodes(pair):
    first, second = pair
    eventually(lambda: sum(bool(node["pids"]) for node in cluster_status(first).values()) == 2)
    deploy = Deployer(first)
    before = on_both(deploy, first)
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


def node_of(server):
    return (server.home / "cluster" / "node-id").read_text()


def versions(server):
    nodes = json.loads(server.get("/_sagehen/cluster"))["nodes"]
    return {node["id"]: (node["version"], node["state"]) for node in nodes}


def test_servers_are_upgraded_one_after_another(pair, tmp_path):
    """Of which one leads, and both become servers of a later version."""
    first, second = pair
    newer = {"PYTHONPATH": str(make_newer_version(tmp_path))}
    nodes = [node_of(server) for server in pair]
    assert (
        Deployer(first).endpoint("rolled", InitialInstanceCount=2)["EndpointStatus"] == "InService"
    )
    with traffic(Balancer(*pair), "rolled") as seen:
        drained = run_command("cluster", "drain", nodes[0], "--home", second.home)
        assert drained.status == 0, drained.stderr
        assert first.stop() == 0
        first.settings |= newer
        first.start()
        eventually(lambda: versions(second)[nodes[0]] == (VERSION, "draining"))
        undone = run_command("cluster", "drain", nodes[0], "--undo", "--home", first.home)
        assert undone.status == 0, undone.stderr
        # Controls of two versions, on the tables of the newer one.
        deploy = Deployer(second)
        assert deploy.endpoint("mixed", InitialInstanceCount=2)["EndpointStatus"] == "InService"
        assert Deployer(first).invoke("mixed") == deploy.invoke("mixed")
        seen.goes_on()
        # Its instances leave the other server when it is stopped, and its leadership passes on.
        assert second.stop() == 0
        moved = cluster_status(first)
        assert moved[nodes[1]]["instances"] == []
        seen.goes_on()
        assert Deployer(first).endpoint("after")["EndpointStatus"] == "InService"
        second.settings |= newer
        second.start()
        eventually(lambda: versions(first)[nodes[1]] == (VERSION, "ready"))
        seen.goes_on()
    assert seen.errors == []
    status = json.loads(first.get("/_sagehen/status"))
    serving = {
        each["name"]: sum(variant["in_service"] for variant in each["variants"])
        for each in status["endpoints"]
    }
    assert (serving["rolled"], serving["mixed"], serving["after"]) == (2, 2, 1)


def test_a_restored_cluster_leaves_the_nodes_of_a_running_one_alone(pair, shared, short_path):
    first, second = pair
    before = {key: node["instances"] for key, node in cluster_status(first).items()}
    url = shared["database_url"]
    settings = {**shared, "database_url": url.replace("/postgres?", "/restored?")}
    database = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with database.connect() as connection:
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.exec_driver_sql("CREATE DATABASE restored")
    database.dispose()
    home = short_path / "home"
    stored = {name: shared[name] for name in ("object_store_url", "object_store_options")}
    stored["object_store_options"] = json.loads(stored["object_store_options"])
    take_backup(settings_of(first.home, database_url=url, **stored), short_path / "backup")
    new = settings_of(home, database_url=settings["database_url"], **stored)
    restore_backup(new, short_path / "backup")
    chosen = {f"SAGEHEN_{name.upper()}": value for name, value in settings.items()}
    restored = Server(home, {**chosen, "SAGEHEN_CLUSTER_LEAVE_SECONDS": "0"})
    try:
        restored.start()
        assert set(cluster_status(restored)) == {node_of(restored)}
        answer = Deployer(first).invoke("rolled")

        def answers():
            try:
                return Deployer(restored).invoke("rolled") == answer
            except ClientError:
                return False

        eventually(answers, 240)
        assert {key: node["instances"] for key, node in cluster_status(first).items()} == before
        assert Deployer(second).invoke("rolled") == answer
    finally:
        restored.stop()
    # Nothing is to move when the servers stop.
    sagemaker = first.client("sagemaker")
    for endpoint in sagemaker.list_endpoints()["Endpoints"]:
        sagemaker.delete_endpoint(EndpointName=endpoint["EndpointName"])
    eventually(lambda: not any(node["instances"] for node in cluster_status(first).values()))


def test_a_server_that_leaves_waits_only_for_what_can_move(make_server, shared):
    """Each node has room for one instance, and the cluster for no third."""
    url = shared["database_url"].replace("/postgres?", "/small?")
    database = create_engine(shared["database_url"].replace("postgresql:", "postgresql+psycopg:"))
    with database.connect() as connection:
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.exec_driver_sql("CREATE DATABASE small")
    database.dispose()
    small = {**shared, "database_url": url, "cluster_cpus": "2"}
    first = make_server(**small)
    token = run_command("cluster", "token", "--home", first.home).stdout.strip()
    second = make_server(**small, cluster_token=token, host="127.0.0.2")
    eventually(lambda: sum(bool(node["pids"]) for node in cluster_status(first).values()) == 2)
    deploy = Deployer(first)
    assert deploy.endpoint("full", InitialInstanceCount=2)["EndpointStatus"] == "InService"
    began = time.monotonic()
    assert second.stop() == 0
    assert time.monotonic() - began < int(small["cluster_leave_seconds"]) / 2
    printed = " ".join((second.home.parent / "up.log").read_text().split())
    assert "No other node has room for 1 instances, which end with this server: ml.m5" in printed
    assert Deployer(first).invoke("full") == "[2.0, 4.0]"
