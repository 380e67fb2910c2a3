"""Nodes of a cluster on this machine, each with its own home, address and processes."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from sagehen.app.cluster import load_authority
from sagehen.app.cluster_node import NodeStart
from sagehen.base.cluster_certificates import issue
from sagehen.base.credentials import load_credentials, load_token
from sagehen.base.home import Home
from sagehen.base.pickled_settings import pickle_settings
from sagehen.frame.nodes import Resources
from sagehen.placement import store
from sagehen.placement.records import NodeRecord
from sagehen.state.database import Database
from support.cli import run_command
from support.server import Server, clean_environment, gates_folder
from support.state import settings_of

ROOM = {"cluster_cpus": "64", "cluster_memory_gib": "512", "cluster_leave_seconds": "0"}
"""Settings with which a server's own node has room for all that tests start, and which do not move
instances when a server stops in the end."""


class Node:
    """A node without a control, whose starter is the test."""

    def __init__(self, server: Server, number: int) -> None:
        self.node_id = f"node-{number}"
        self.host = f"127.0.0.{number}"
        self._server = server
        self._folder = Path(tempfile.mkdtemp(prefix="sgh-"))
        self.home = Home(self._folder / "home")
        self.process: subprocess.Popen[bytes] | None = None
        self.addresses: dict[str, str] = {}

    def start(self) -> None:
        self.home.path.mkdir(mode=0o700, exist_ok=True)
        of_server = Home(self._server.home)
        if not self.home.objects.exists():
            # One machine: all nodes see the objects' folder of the server.
            self.home.objects.symlink_to(of_server.objects)
        settings = settings_of(
            self.home.path,
            host=self.host,
            port=0,
            gateways=1,
            database_url=f"sqlite:///{self._server.home / 'state.db'}",
            shared_folders=(str(gates_folder()),),
        )
        begin = NodeStart(
            node_id=self.node_id,
            certificate=issue(load_authority(of_server), self.node_id),
            keys=load_credentials(of_server.credentials),
            token=load_token(of_server.token),
            settings=pickle_settings(settings),
        )
        module = ["-m", "sagehen.app.cluster_node", f"--parent={os.getpid()}"]
        with (self._folder / "node.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *module, "--home", str(self.home.path), "--host", self.host],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=clean_environment(),
                start_new_session=True,
            )
        self.process.stdin.write(pickle.dumps(begin))
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, (self._folder / "node.log").read_text()
        self.addresses = json.loads(line)
        self._register()

    def _register(self) -> None:
        record = NodeRecord(
            node_id=self.node_id,
            agent_address=self.addresses["agent"],
            peer_address=self.addresses["peer"],
            gateway_address=self.addresses["gateway"],
            resources=Resources(cpus=64, memory_bytes=512 * 2**30),
            seen_at=time.time(),
        )
        database = Database(f"sqlite:///{self._server.home / 'state.db'}")
        with database.write() as connection:
            store.put(connection, record)
        database.close()

    def signal_all(self, number: int) -> None:
        """Sends a signal to every process of the node."""
        top = psutil.Process(self.process.pid)
        for each in [top, *top.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)

    def kill(self) -> None:
        self.signal_all(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Ends it with SIGTERM, as an operator would."""
        self.process.terminate()
        assert self.process.wait(120) == 0
        self.process.stdin.close()
        self.process.stdout.close()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.process is not None:
            self.process.stdin.close()
            self.process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def node_maker(server: Server) -> Iterator[Callable[[int], Node]]:
    """`make(number)` starts a node at 127.0.0.<number>; all are stopped in the end."""
    made: list[Node] = []

    def make(number: int) -> Node:
        made.append(Node(server, number))
        made[-1].start()
        return made[-1]

    try:
        yield make
    finally:
        for node in made:
            node.close()


def cluster_status(server: Server) -> dict[str, dict[str, Any]]:
    """What `sagehen cluster status --json` shows, by node."""
    told = run_command("cluster", "status", "--json", "--home", server.home)
    assert told.status == 0, told.stderr
    return nodes_of(told.stdout)


def nodes_of(status: str) -> dict[str, dict[str, Any]]:
    """The nodes in such a JSON, by id."""
    return {node["id"]: node for node in json.loads(status)["nodes"]}
