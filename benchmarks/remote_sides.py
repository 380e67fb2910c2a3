"""A cluster of gateways for remote_link.py and routing_nodes.py, without agents and control.

    remote_sides.py FOLDER NODES SERVERS [--plain]

Starts NODES gateways, each a process with a home of its own, and SERVERS model servers of
FOLDER/model on each node, with the adapter in FOLDER/adapter. The endpoint `all` has the instances
of all nodes, and `nN` those of node N only. Prints the gateways' addresses; ends with SIGTERM.
`--plain` leaves TLS out of the links.
"""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import uvloop
from link_sides import ACCESS_KEY, SECRET_KEY, START_TIMEOUT_SECONDS

from sagehen.base.clock import SYSTEM
from sagehen.base.cluster_certificates import issue, make_authority, write_certificate
from sagehen.base.errors import Unavailable
from sagehen.base.home import Home, prepare_home
from sagehen.base.settings import Settings
from sagehen.frame.routes import (
    InstanceRoute,
    NodeRoute,
    Route,
    RouteTable,
    RoutingStrategy,
    VariantRoute,
)
from sagehen.gateway.assembly import make_gateway
from sagehen.gateway.peers.cluster import Cluster
from sagehen.gateway.routing.inflight import create_inflight_table, open_inflight_table
from sagehen.http1.call import call_once

Ports = list[tuple[int, int]]
"""of the clients and of other nodes, by node"""


def main() -> None:
    folder, nodes, servers, *more = sys.argv[1:]
    if servers == "gateway":
        uvloop.run(serve(Path(folder), int(nodes), "--plain" in more))
    else:
        supervise(Path(folder), int(nodes), int(servers), more)


def supervise(folder: Path, nodes: int, servers: int, more: list[str]) -> None:
    authority = make_authority()
    sockets = [(listener(), listener()) for _ in range(nodes)]
    ports = [(each.getsockname()[1], other.getsockname()[1]) for each, other in sockets]
    for pair in sockets:
        for each in pair:
            each.close()
    (folder / "ports").write_bytes(msgspec.json.encode(ports))
    table = msgspec.json.encode(route_table(folder, nodes, servers, ports))
    children = []
    for node in range(nodes):
        home = prepare_home(folder / f"h{node}")
        write_certificate(home.cluster, issue(authority, f"n{node}"))
        home.node_id.write_text(f"n{node}")
        home.routes.write_bytes(table)
        create_inflight_table(home.inflight_table, 1)
        for server in range(servers):
            children.append(model_server(folder, node, server))
    for node in range(nodes):
        for server in range(servers):
            asyncio.run(is_loaded(place(folder, node, server)))
        words = [sys.executable, __file__, str(folder), str(node), "gateway", *more]
        children.append(subprocess.Popen(words))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        for port, _ in ports:
            asyncio.run(is_listening(port))
        print(" ".join(f"http://127.0.0.1:{port}" for port, _ in ports), flush=True)
        signal.pause()
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait()


def listener(port: int = 0) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made


def place(folder: Path, node: int, server: int) -> Path:
    return folder / f"m{node}-{server}"


def model_server(folder: Path, node: int, server: int) -> "subprocess.Popen[bytes]":
    base = place(folder, node, server)
    base.mkdir()
    (base / "model").symlink_to(folder / "model")
    environment = os.environ | {
        "SAGEMAKER_BASE_DIR": str(base),
        "SAGEHEN_ADAPTER": (folder / "adapter").read_text(),
        "SAGEHEN_BIND": f"unix:{base / 'http.sock'}",
        "SAGEMAKER_MODEL_SERVER_WORKERS": "1",
    }
    if (folder / "slots").exists():
        environment["SAGEHEN_SLOTS"] = (folder / "slots").read_text()
    return subprocess.Popen(
        [sys.executable, "-m", "sagehen.containers.modelserver"],
        env=environment,
        stderr=subprocess.DEVNULL,
    )


def route_table(folder: Path, nodes: int, servers: int, ports: Ports) -> RouteTable:
    slots = int((folder / "slots").read_text()) if (folder / "slots").exists() else 8
    instances = {
        node: tuple(
            InstanceRoute(
                instance_id=f"i-{node:08x}{server:09x}",
                address=f"link:{place(folder, node, server) / 'http.sock'}",
                node_id=f"n{node}",
                inflight_column=node * servers + server,
                slots=slots,
            )
            for server in range(servers)
        )
        for node in range(nodes)
    }
    everything = tuple(each for of_node in instances.values() for each in of_node)
    routes = [route("all", everything), *(route(f"n{n}", own) for n, own in instances.items())]
    return RouteTable(
        routes={each.endpoint_name: each for each in routes},
        nodes={
            f"n{node}": NodeRoute(peer_address=f"127.0.0.1:{peer}")
            for node, (_, peer) in enumerate(ports)
        },
    )


def route(name: str, instances: tuple[InstanceRoute, ...]) -> Route:
    variant = VariantRoute(
        name="AllTraffic",
        weight=1,
        instances=instances,
        strategy=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
    )
    return Route(endpoint_name=name, variants=(variant,))


async def serve(folder: Path, node: int, is_plain: bool) -> None:
    ports: Ports = msgspec.json.decode((folder / "ports").read_bytes(), type=Ports)
    home = Home(folder / f"h{node}")
    gateway = make_gateway(
        Settings(access_log=False),
        home,
        {ACCESS_KEY: SECRET_KEY},
        SYSTEM,
        random.Random(node),
        open_inflight_table(home.inflight_table, 0),
    )
    if is_plain:
        leave_tls_out(gateway._cluster)
    await gateway.serve(*map(listener, ports[node]))


def leave_tls_out(cluster: Cluster | None) -> None:
    assert cluster is not None
    cluster._server_tls = None
    cluster.peers._tls = lambda node_id: None


async def is_loaded(folder: Path) -> None:
    async with asyncio.timeout(START_TIMEOUT_SECONDS):
        while True:
            try:
                answer = await call_once(
                    f"unix:{folder / 'http.sock'}", "GET", "/ping", timeout_seconds=2
                )
                if answer.status == 200:
                    return
            except Unavailable:
                pass
            await asyncio.sleep(0.05)


async def is_listening(port: int) -> None:
    async with asyncio.timeout(START_TIMEOUT_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


if __name__ == "__main__":
    main()
