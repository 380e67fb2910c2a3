"""The processes of control_scale.py: control and a gateway, which count, and simulated agents."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from sides import HERE, Server, answers, free_port
from simulated_agents import Plan, SimulatedNode

from sagehen.app.cluster import join_as_server, load_authority, prepare_node
from sagehen.base.cluster_certificates import issue, write_certificate
from sagehen.base.credentials import make_credentials, make_token
from sagehen.base.home import prepare_home
from sagehen.base.pickled_settings import pickle_settings
from sagehen.base.settings import Settings
from sagehen.frame.nodes import Resources
from sagehen.gateway.routing.inflight import create_inflight_table
from sagehen.placement import store as node_store
from sagehen.placement.records import NodeRecord
from sagehen.state.database import Database
from sagehen.state.opening import open_state

INSTANCES = 2
"""of each endpoint"""
CPUS, MEMORY = 2.0, 8 * 2**30
"""of ml.m5.large"""
ADDED = 10
"""endpoints that are created and deleted at each size, one after the other"""
LONGEST_WAIT_SECONDS = 300.0
HOST = "127.0.0.1"

Counts = dict[str, float]


@dataclass(frozen=True)
class Sides:
    """The processes that run, and how to ask them."""

    server: Server
    sockets: dict[str, Path]
    """by role: where it tells its counts"""

    def counts(self, role: str) -> Counts:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.sockets[role]))
            parts = iter(lambda: connection.recv(65536), b"")
            found: Counts = json.loads(b"".join(parts))
        return found

    def table(self) -> bytes:
        return (self.server.home / "run" / "routes.json").read_bytes()


@contextmanager
def running_sides(
    folder: Path, url: str | None, nodes: int, sizes: Sequence[int]
) -> Iterator[Sides]:
    home = prepare_home(folder / "home")
    port, address = free_port(), f"tcp:{HOST}:{free_port()}"
    most = INSTANCES * (max(sizes) + ADDED)
    per_node = -(-most // nodes) + 2 if nodes else 0
    settings = Settings(
        home=home.path,
        host=HOST,
        port=port,
        gateways=1,
        database_url=url,
        cluster="state" if nodes else None,
        cluster_cpus=per_node * CPUS or None,
        cluster_memory_gib=per_node * MEMORY / 2**30 or None,
        max_endpoint_instances=4 * most,
        partition="aws",
    )
    open_state(settings)
    keys = make_credentials(home.credentials)
    make_token(home.token)
    create_inflight_table(home.inflight_table, 1)
    sockets = {role: folder / f"{role}.counts" for role in ("control", "gateway", "agents")}
    with ExitStack() as stack:
        plan = Plan(counts=str(sockets["agents"]), instance_address=address, home=str(home.path))
        inherited: dict[str, list[int]] = {role: [] for role in sockets}
        public = stack.enter_context(socket.create_server((HOST, port), backlog=512))
        inherited["gateway"].append(public.fileno())
        if nodes:
            setup = stack.enter_context(join(settings, home, port))
            simulated = simulated_nodes(stack, settings, folder, setup, nodes, per_node)
            plan = msgspec.structs.replace(plan, home="", nodes=simulated)
            inherited["gateway"].append(setup.peer_listener.fileno())
            inherited["control"].append(setup.control_listener.fileno())
            inherited["agents"] += [each.listener for each in simulated]
        pickled = pickle_settings(settings)
        for role, command in commands(folder, plan, sockets, inherited).items():
            stack.enter_context(child(command, folder / f"{role}.log", pickled, inherited[role]))
        credentials = {"access_key": keys.access_key, "secret_key": keys.secret_key}
        server = Server(f"http://{HOST}:{port}", credentials, home.path, os.getpid())
        until(lambda: answers(f"{server.url}/_sagehen/health"), "the server answers")
        yield Sides(server, sockets)


def simulated_nodes(
    stack: ExitStack, settings: Settings, folder: Path, setup: Any, nodes: int, per_node: int
) -> tuple[SimulatedNode, ...]:
    """Returns the server's own node, and the others, whose listeners are closed with `stack`."""
    own = SimulatedNode(setup.addresses.node_id, str(settings.home), setup.agent_listener.fileno())
    others = (
        stack.enter_context(other_node(settings, folder, number, per_node))
        for number in range(1, nodes)
    )
    return (own, *others)


def commands(
    folder: Path, plan: Plan, sockets: Mapping[str, Path], inherited: Mapping[str, list[int]]
) -> dict[str, list[str]]:
    """Returns the command line of each process by its role; the agents come first."""
    file = folder / "agents.json"
    file.write_bytes(msgspec.json.encode(plan))
    found = {"agents": [sys.executable, str(HERE / "simulated_agents.py"), str(file)]}
    for role in ("control", "gateway"):
        words = [sys.executable, str(HERE / "counted_role.py"), role, str(sockets[role])]
        words += [f"--parent={os.getpid()}"]
        words += [f"--socket={descriptor}" for descriptor in inherited[role]]
        found[role] = [*words, "--number=0"]
    return found


@contextmanager
def join(settings: Settings, home: Any, port: int) -> Iterator[Any]:
    join_as_server(settings, home)
    with prepare_node(home, HOST, port) as setup:
        yield setup


@contextmanager
def other_node(
    settings: Settings, folder: Path, number: int, capacity: int
) -> Iterator[SimulatedNode]:
    """A member of the cluster, with its row."""
    node_id = f"n{number}"
    home = prepare_home(folder / node_id)
    write_certificate(home.cluster, issue(load_authority(prepare_home(settings.home)), node_id))
    with socket.create_server((HOST, 0), backlog=64) as listener:
        record = NodeRecord(
            node_id=node_id,
            agent_address=f"{HOST}:{listener.getsockname()[1]}",
            peer_address=f"{HOST}:1",
            gateway_address=f"{HOST}:1",
            resources=Resources(cpus=capacity * CPUS, memory_bytes=capacity * MEMORY),
            seen_at=time.time(),
        )
        database = Database(settings.state_url)
        with database.write() as connection:
            node_store.put(connection, record)
        database.close()
        yield SimulatedNode(node_id, str(home.path), listener.fileno())


@contextmanager
def child(
    command: Sequence[str], log: Path, stdin: bytes, descriptors: Sequence[int]
) -> Iterator[None]:
    with open(log, "wb") as output:
        running = subprocess.Popen(
            command,
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=descriptors,
            start_new_session=True,
        )
    assert running.stdin is not None
    running.stdin.write(stdin)
    running.stdin.close()
    try:
        yield
    finally:
        if running.poll() is not None:
            print(log.read_text()[-3000:], file=sys.stderr)
        running.terminate()
        running.wait(30)


def until(holds: Callable[[], bool], what: str, pause: float = 0.05) -> None:
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"It did not come about that {what}.")
        time.sleep(pause)
