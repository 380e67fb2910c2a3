"""What `sagehen cluster` prints."""

import json

import pytest
from typer.testing import CliRunner

from sagehen.app import cluster as app_cluster
from sagehen.app.cluster import NodeAddresses
from sagehen.app.commands import cluster
from sagehen.app.commands.cluster import cluster_app

NODE = {
    "id": "n1",
    "address": "h:9000",
    "head": True,
    "state": "ready",
    "version": "0.1",
    "leader": True,
    "capacity": {"cpus": 4.0, "memory_gib": 15.5, "gpus": 0.0},
    "reserved": {"cpus": 2.0, "memory_gib": 8.0, "gpus": 0.0},
    "instances": ["i-1"],
    "transform_instances": 0,
    "jobs": [],
    "pids": [7],
}
WAITING = {"id": "i-2", "reason": "no node has 8 vCPUs"}


@pytest.fixture
def show(monkeypatch, tmp_path):
    """Runs `sagehen cluster status` with a server's answer."""

    def run(answer, *arguments):
        monkeypatch.setattr(cluster, "call_control", lambda home, path: answer)
        result = CliRunner().invoke(
            cluster_app, ["status", *arguments, "--home", str(tmp_path)], catch_exceptions=False
        )
        assert result.exit_code == 0
        return result.output

    return run


def test_names_are_whole_in_a_narrow_terminal(show, monkeypatch):
    """`sagehen cluster drain` needs them."""
    monkeypatch.setenv("COLUMNS", "40")
    name = "node-10-77-0-13-of-the-machine-with-a-long-name"
    other = {**NODE, "id": name, "leader": False, "address": "10.77.0.13:9000", "reserved": None}
    own, listed = show({"nodes": [NODE, other], "waiting": []}).splitlines()[1:3]
    assert own.split("  ")[0] == "n1"
    assert "leads" in own
    assert all(share in own for share in ("2 of 4", "8 of 15.5 GiB", "0 of 0"))
    assert listed.startswith(f"{name}  10.77.0.13:9000  ready")


def test_what_waits_is_printed_below_the_nodes(show):
    answer = {"nodes": [NODE], "waiting": [WAITING], "of_leader": True}
    assert "i-2 waits for room on a node: no node has 8 vCPUs." in show(answer)
    shown = json.loads(show(answer, "--json"))
    assert shown["waiting"] == [WAITING]
    assert shown["nodes"][0]["state"] == "ready"


def test_problems_besides_the_nodes_are_shown(show):
    answer = {"nodes": [NODE], "waiting": [], "of_leader": True, "problems": ["Ray is silent."]}
    assert "Ray is silent." in show(answer)
    assert json.loads(show(answer, "--json"))["problems"] == ["Ray is silent."]


def test_an_older_server_does_not_say_whether_it_leads(show):
    answer = {"nodes": [NODE], "waiting": [WAITING]}
    assert "i-2 waits" in show(answer)


def test_without_a_leader_what_waits_is_not_known(show):
    text = show({"nodes": [NODE], "waiting": [], "of_leader": False})
    assert "what waits for room is not known" in " ".join(text.split())


def test_leaving_is_undone_at_the_own_server(monkeypatch, tmp_path):
    asked = []
    addresses = NodeAddresses(
        node_id="node 1", agent="h:1", peer="h:2", gateway="10.0.0.7:9000", control="h:3"
    )
    monkeypatch.setattr(app_cluster, "read_addresses", lambda home: addresses)
    monkeypatch.setattr(
        cluster, "call_server", lambda url, home, path, method: asked.append((url, path, method))
    )
    result = CliRunner().invoke(cluster_app, ["leave", "--undo", "--home", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert asked == [("http://10.0.0.7:9000", "cluster/nodes/node%201/serve", "PUT")]
    assert "takes new work" in result.output
