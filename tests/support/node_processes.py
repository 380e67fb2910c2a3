"""Nodes of a cluster as processes: gateways and model servers each, without agent and control."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import boto3
import msgspec
from botocore.config import Config

from sagehen.base.cluster_certificates import Authority, make_authority
from sagehen.base.credentials import make_credentials
from sagehen.base.errors import Unavailable
from sagehen.base.home import Home, prepare_home
from sagehen.base.pickled_settings import pickle_settings
from sagehen.frame.routes import InstanceRoute, NodeRoute, Route, RouteTable, VariantRoute
from sagehen.gateway.routing.inflight import create_inflight_table
from support.fixtures.cluster import join
from support.server import MAKING_CLIENTS
from support.state import settings_of

__all__ = ["Cluster", "Node"]

START_SECONDS = 60
REGION = "us-east-1"


class Node:
    """One node: a home, processes of gateways and their ports.

    Gateways share the port for other nodes; for clients each has one of its own, so that a test
    knows which it calls.
    """

    def __init__(self, authority: Authority, number: int, gateways: int = 1) -> None:
        self.id = f"n{number}"
        self.folder = Path(tempfile.mkdtemp(prefix="sgn"))
        self.home: Home = prepare_home(self.folder / "home")
        join(self.home, authority, self.id)
        create_inflight_table(self.home.inflight_table, gateways)
        self.public = [socket.create_server(("127.0.0.1", 0)) for _ in range(gateways)]
        self.peer = socket.create_server(("127.0.0.1", 0))
        self.peer_port = self.peer.getsockname()[1]
        self.gateways: list[subprocess.Popen[bytes]] = []
        self.servers: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self.gateways = [self._start_gateway(row) for row in range(len(self.public))]

    def restart_gateway(self, row: int) -> None:
        """Does what the supervisor does for one that was killed."""
        self.gateways[row].wait()
        self.gateways[row] = self._start_gateway(row)

    def _start_gateway(self, row: int) -> subprocess.Popen[bytes]:
        settings = settings_of(self.home.path, access_log=False, gateways=len(self.public))
        descriptors = [self.public[row].fileno(), self.peer.fileno()]
        gateway = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "sagehen.app.roles.gateway",
                f"--parent={os.getpid()}",
                *(f"--socket={descriptor}" for descriptor in descriptors),
                f"--number={row}",
            ],
            stdin=subprocess.PIPE,
            pass_fds=descriptors,
        )
        assert gateway.stdin is not None
        gateway.stdin.write(pickle_settings(settings))
        gateway.stdin.close()
        return gateway

    def add_model(self, script: str, **environment: str) -> str:
        """Starts a model server; returns its address."""
        folder = self.folder / f"m{len(self.servers)}"
        code = folder / "model" / "code"
        code.mkdir(parents=True)
        (code / "inference.py").write_text(script)
        path = folder / "http.sock"
        self.servers.append(
            subprocess.Popen(
                [sys.executable, "-m", "sagehen.containers.modelserver"],
                env=os.environ
                | {
                    "SAGEMAKER_BASE_DIR": str(folder),
                    "SAGEHEN_ADAPTER": "python",
                    "SAGEHEN_BIND": f"unix:{path}",
                    "SAGEMAKER_MODEL_SERVER_WORKERS": "1",
                    **environment,
                },
            )
        )
        return f"link:{path}"

    def signal(self, number: int) -> None:
        """To every process of the node."""
        for process in (*self.gateways, *self.servers):
            if process.poll() is None:
                process.send_signal(number)

    def end(self) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        for process in (*self.gateways, *self.servers):
            process.wait()
        for each in (*self.public, self.peer):
            each.close()


class Cluster:
    """Starts nodes, and writes their route tables as agents do."""

    def __init__(self, count: int, gateways: int = 1) -> None:
        self._authority = make_authority()
        self.nodes = [Node(self._authority, number, gateways) for number in range(count)]
        keys = make_credentials(self.nodes[0].home.credentials)
        self.keys = (keys.access_key, keys.secret_key)
        for node in self.nodes[1:]:
            node.home.credentials.write_bytes(self.nodes[0].home.credentials.read_bytes())
        self._version = 0

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def route(self, *instances: tuple[int, str], endpoint: str = "price", slots: int = 1) -> None:
        """`instances`: node and address of each. Returns when all models are loaded."""
        for _, address in instances:
            wait_for_model(Path(address.partition(":")[2]))
        self._version += 1
        routes = tuple(
            InstanceRoute(
                instance_id=f"i-{at:017x}",
                address=address,
                node_id=self.nodes[node].id,
                inflight_column=at,
                slots=slots,
                run_id="r",
            )
            for at, (node, address) in enumerate(instances)
        )
        variant = VariantRoute(name="Main", weight=1, instances=routes)
        table = RouteTable(
            routes={endpoint: Route(endpoint_name=endpoint, variants=(variant,))},
            nodes={
                node.id: NodeRoute(peer_address=f"127.0.0.1:{node.peer_port}")
                for node in self.nodes
            },
            version=self._version,
        )
        for node in self.nodes:
            draft = node.home.routes.with_suffix(".new")
            draft.write_bytes(msgspec.json.encode(table))
            draft.replace(node.home.routes)

    def client(self, node: int, gateway: int = 0) -> Any:
        access_key, secret_key = self.keys
        port = self.nodes[node].public[gateway].getsockname()[1]
        with MAKING_CLIENTS:
            return boto3.client(
                "sagemaker-runtime",
                endpoint_url=f"http://127.0.0.1:{port}",
                region_name=REGION,
                aws_access_key_id=access_key,
                aws_secret_access_key=secret_key,
                config=Config(retries={"max_attempts": 0}),
            )

    def end(self) -> None:
        for node in self.nodes:
            node.end()


def wait_for_model(path: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if path.exists() and is_ready(path):
            return
        time.sleep(0.05)
    raise TimeoutError(f"The model server at {path} is not ready.")


def is_ready(path: Path) -> bool:
    import asyncio

    from sagehen.http1.call import call_once

    async def ping() -> int:
        return (await call_once(f"unix:{path}", "GET", "/ping", timeout_seconds=5)).status

    try:
        return asyncio.run(ping()) == 200
    except Unavailable:
        return False
