"""`sagehen cluster`: shows the nodes of a cluster, drains one, and prints what a machine needs to
join."""

import asyncio
import json
import sys
import time
from typing import Annotated, Any
from urllib.parse import quote

import typer

from sagehen.app.commands.control_client import call_control, call_server
from sagehen.app.commands.output import print_table
from sagehen.base.config import load_settings
from sagehen.base.errors import Unavailable
from sagehen.base.home import Home
from sagehen.base.terminal import ConfigOption, HomeOption, JsonOption, out, plain_errors

__all__ = ["cluster_app"]

cluster_app = typer.Typer(help="The machines of a cluster.", no_args_is_help=True)

LOOK_SECONDS = 0.5
LONGEST_AWAY_SECONDS = 60.0
"""while another control takes over, or a server starts again"""
_COLUMNS = (
    *("Node", "Address", "State", "Control", "Version"),
    *("vCPUs", "Memory", "GPUs", "Instances", "Jobs"),
)
_IN_JSON = (
    *("id", "address", "leader", "head", "state", "version"),
    *("capacity", "reserved", "instances", "jobs", "pids"),
)


@cluster_app.command("status")
def show_nodes(
    as_json: JsonOption = False, home: HomeOption = None, config: ConfigOption = None
) -> None:
    """Show the nodes, with what runs on each."""
    with plain_errors():
        answer = call_control(Home(load_settings(config, home=home).home), "cluster")
        nodes = answer["nodes"]
        if as_json:
            shown = [{name: node.get(name) for name in _IN_JSON} for node in nodes]
            told = {
                "nodes": shown,
                "waiting": answer["waiting"],
                "problems": answer.get("problems", []),
            }
            sys.stdout.write(json.dumps(told, indent=2) + "\n")
        else:
            print_table([_COLUMNS, *map(_row, nodes)])
            for line in [*_waiting(answer), *answer.get("problems", [])]:
                out.print(line, markup=False)


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


@cluster_app.command("leave")
def leave(
    seconds: Annotated[
        float | None, typer.Option(help="The longest wait; default: cluster_leave_seconds.")
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Let the node take new work again: it does not stop.")
    ] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Move the instances of endpoints away from this machine's node, which will stop. A server
    does so by itself when it stops; this is for what kills a node, such as a pod's preStop."""
    with plain_errors():
        from sagehen.app.cluster import read_addresses
        from sagehen.app.leaving import leave_cluster
        from sagehen.base.clock import SYSTEM

        settings = load_settings(config, home=home)
        folder = Home(settings.home)
        addresses = read_addresses(folder)
        longest = settings.cluster_leave_seconds if seconds is None else seconds
        url, node_id = f"http://{addresses.gateway}", addresses.node_id
        if undo:
            call_server(url, folder, f"cluster/nodes/{quote(node_id, safe='')}/serve", "PUT")
            out.print(f"The node {node_id} takes new work.", markup=False)
            return
        work = leave_cluster(folder, url, node_id, longest, SYSTEM, _report)
        asyncio.run(work)


@cluster_app.command("token")
def show_token(home: HomeOption = None, config: ConfigOption = None) -> None:
    """Print what another machine needs to join, as cluster_token. Whoever has it may do everything:
    keep it like a password."""
    with plain_errors():
        from sagehen.app.cluster import write_join_token

        token = write_join_token(Home(load_settings(config, home=home).home))
        sys.stdout.write(token + "\n")


def _report(text: str) -> None:
    out.print(text, markup=False)


def _waiting(answer: dict[str, Any]) -> list[str]:
    if not answer.get("of_leader", True):
        return ["The control that leads does not answer now: what waits for room is not known."]
    return [
        f"{each['id']} waits for room on a node: {each['reason']}." for each in answer["waiting"]
    ]


def _wait_until_empty(home: Home, node_id: str) -> None:
    shown: list[str] = []
    heard_at = time.monotonic()
    while True:
        try:
            answer = call_control(home, "cluster")
        except Unavailable:
            # Another control may be taking over.
            if time.monotonic() - heard_at > LONGEST_AWAY_SECONDS:
                raise
            time.sleep(LOOK_SECONDS)
            continue
        heard_at = time.monotonic()
        node = next((node for node in answer["nodes"] if node["id"] == node_id), None)
        if node is None or node["state"] in ("lost", "stopped"):
            raise Unavailable(f"The node {node_id} does not answer any more.")
        if not node["instances"] and not node["jobs"]:
            return
        rest = f"{len(node['instances'])} instances and {len(node['jobs'])} jobs"
        lines = [f"On {node_id}: {rest} ...", *_waiting(answer)]
        for line in lines:
            if line not in shown:
                out.print(line, markup=False)
        shown = lines
        time.sleep(LOOK_SECONDS)


def _row(node: dict[str, Any]) -> tuple[str, ...]:
    return (
        node["id"],
        node["address"],
        node["state"],
        "leads" if node.get("leader") else "yes" if node["head"] else "-",
        node["version"],
        _share(node, "cpus"),
        _share(node, "memory_gib", " GiB"),
        _share(node, "gpus"),
        str(len(node["instances"])),
        str(len(node["jobs"])),
    )


def _share(node: dict[str, Any], name: str, unit: str = "") -> str:
    """Returns what is reserved, where that is known, of what the node has."""
    capacity, reserved = node.get("capacity"), node.get("reserved")
    if not capacity:
        return "-"
    whole = f"{capacity[name]:.4g}{unit}"
    return f"{reserved[name]:.4g} of {whole}" if reserved else whole
