"""Two servers of a cluster on one PostgreSQL and one S3: the one that leads is killed."""

import json
import signal
from contextlib import suppress

import psutil
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from support.cli import run_command
from support.cluster import ROOM, cluster_status
from support.deploy import Deployer
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
    assert there.invoke("shared") == answer, "a standby serves, too"
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

    def answers():
        try:
            return there.invoke("shared") == answer
        except (ClientError, BotoCoreError):
            return False

    eventually(answers)
    assert there.endpoint("later")["EndpointStatus"] == "InService"

    # The first comes back as a node, and stands by; with its start its gateways know the endpoints.
    first.start()
    assert Deployer(first).invoke("shared") == answer
    eventually(lambda: sum(bool(node["pids"]) for node in cluster_status(second).values()) == 2)
