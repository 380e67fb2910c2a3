"""`sagehen cluster`: shows the nodes of a cluster, drains one, and prints what a machine needs to
join."""

import json
import sys
import time
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.table import Table

from sagehen.app.commands.control_client import call_control
from sagehen.base.config import load_settings
from sagehen.base.errors import Unavailable
from sagehen.base.home import Home
from sagehen.base.terminal import ConfigOption, HomeOption, JsonOption, out, plain_errors

__all__ = ["cluster_app"]

cluster_app = typer.Typer(help="The machines of a cluster.", no_args_is_help=True)

LOOK_SECONDS = 0.5
_IN_JSON = ("id", "address", "head", "instances", "pids")


@cluster_app.command("status")
def show_nodes(
    as_json: JsonOption = False, home: HomeOption = None, config: ConfigOption = None
) -> None:
    """Show the nodes, with what runs on each."""
    with plain_errors():
        nodes = _nodes(Home(load_settings(config, home=home).home))
        if as_json:
            shown = [{name: node[name] for name in _IN_JSON} for node in nodes]
            sys.stdout.write(json.dumps({"nodes": shown}, indent=2) + "\n")
        else:
            out.print(_table(nodes))


@cluster_app.command("drain")
def drain_node(
    node: Annotated[str, typer.Argument(help="The node's id.")],
    undo: Annotated[bool, typer.Option("--undo", help="Let the node take new work again.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until nothing runs there.")] = True,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Move the instances of endpoints away from a node, and give it no new work. Others are in
    service before an instance stops. Jobs that run there run to their end."""
    with plain_errors():
        folder = Home(load_settings(config, home=home).home)
        verb = "serve" if undo else "drain"
        call_control(folder, f"cluster/nodes/{quote(node, safe='')}/{verb}", "PUT")
        if undo:
            out.print(f"The node {node} takes new work.", markup=False)
        elif wait:
            _wait_until_empty(folder, node)
            out.print(f"Nothing runs on {node}: it can be stopped.", markup=False)
        else:
            out.print(f"The node {node} is drained.", markup=False)


@cluster_app.command("token")
def show_token(home: HomeOption = None, config: ConfigOption = None) -> None:
    """Print what another machine needs to join, as cluster_token. Whoever has it may do everything:
    keep it like a password."""
    with plain_errors():
        from sagehen.app.cluster import write_join_token

        token = write_join_token(Home(load_settings(config, home=home).home))
        sys.stdout.write(token + "\n")


def _nodes(home: Home) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = call_control(home, "cluster")["nodes"]
    return nodes


def _wait_until_empty(home: Home, node_id: str) -> None:
    shown = ""
    while True:
        node = next((node for node in _nodes(home) if node["id"] == node_id), None)
        if node is None or node["state"] == "lost":
            raise Unavailable(f"The node {node_id} does not answer any more.")
        rest = f"{len(node['instances'])} instances and {len(node['jobs'])} jobs"
        if not node["instances"] and not node["jobs"]:
            return
        if rest != shown:
            out.print(f"On {node_id}: {rest} ...", markup=False)
            shown = rest
        time.sleep(LOOK_SECONDS)


def _table(nodes: list[dict[str, Any]]) -> Table:
    table = Table("node", "address", "state", "control", "instances", "jobs")
    for node in nodes:
        table.add_row(
            node["id"],
            node["address"],
            node["state"],
            "yes" if node["head"] else "",
            str(len(node["instances"])),
            str(len(node["jobs"])),
        )
    return table
