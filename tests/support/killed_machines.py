"""A cluster of three Ray nodes on this machine, whose nodes are killed as a whole and come back.

Two nodes have a server with a control each; on the third, Ray starts agent and gateways. Their
state is in PostgreSQL, and their objects are in an S3 that is outside the cluster.
"""

import contextlib
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from sqlalchemy.exc import SQLAlchemyError

from sagehen.base.errors import SagehenError
from sagehen.state import leader_row
from sagehen.state.database import Database
from support.cli import run_command
from support.plain_http import ask
from support.postgres import running_postgres
from support.server import Server, eventually

__all__ = ["Machine", "Machines", "NodeKill", "running_machines"]

HOSTS = ("127.0.0.42", "127.0.0.43", "127.0.0.44")
START_SECONDS = 400
"""for Ray's processes on a busy machine"""
END_SECONDS = 60


@dataclass
class Machine:
    """A node, and what its machine's service manager would start again."""

    host: str
    home: Path
    node_id: str
    server: Server | None = None
    """None where Ray starts the node"""
    url: str = ""
    """of its gateways; empty while they do not run"""


@dataclass(frozen=True, kw_only=True)
class NodeKill:
    """A node that was killed, and when: monotonic."""

    machine: Machine
    url: str
    led: bool
    had_ray_head: bool
    began: float
    ended: float
    """then nothing of it ran any more"""
    processes: int


class _Ray:
    """Ray's nodes: see ray_machines.py."""

    def __init__(self, folder: Path, homes: dict[str, Path]) -> None:
        program = Path(__file__).with_name("ray_machines.py")
        pairs = [f"{host}={home}" for host, home in homes.items()]
        self._log = (folder / "ray.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, str(program), str(folder), *pairs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            self.close()
            raise AssertionError((folder / "ray.log").read_text())

    def order(self, order: str, host: str) -> Any:
        self._process.stdin.write(f"{order} {host}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "Ray's nodes have ended"
        return json.loads(answer)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(START_SECONDS)
        self._process.stdout.close()
        self._log.close()


class Machines:
    """Clients of any gateway that runs, and the death of nodes."""

    def __init__(self, machines: list[Machine], ray: _Ray, database: Database) -> None:
        self.all = machines
        self._ray = ray
        self._database = database
        self._turns = itertools.count()

    # What `support.sure_endpoint` and `support.deploy` know of a server

    @property
    def url(self) -> str:
        urls = self.urls
        return urls[next(self._turns) % len(urls)]

    @property
    def urls(self) -> list[str]:
        return [machine.url for machine in self.all if machine.url]

    @property
    def bearer(self) -> dict[str, str]:
        token = (self.all[0].home / "token").read_text()
        return {"Authorization": f"Bearer {token}"}

    def client(self, service: str, **config: Any) -> "AnyClient":
        return AnyClient(self, service, config)

    def client_at(self, url: str, service: str, **config: Any) -> Any:
        keys = json.loads((self.all[0].home / "credentials.json").read_text())
        return boto3.client(
            service,
            endpoint_url=url,
            aws_access_key_id=keys["access_key"],
            aws_secret_access_key=keys["secret_key"],
            region_name="us-east-1",
            config=Config(**{"retries": {"max_attempts": 0}, **config}),
        )

    # Nodes

    def status(self) -> dict[str, dict[str, Any]]:
        """What `sagehen cluster status --json` shows, by node; empty while nobody answers."""
        for machine in self.all:
            if machine.server is not None and machine.url:
                with contextlib.suppress(SagehenError):
                    shown = run_command("cluster", "status", "--json", "--home", machine.home)
                    if shown.status == 0:
                        return {node["id"]: node for node in json.loads(shown.stdout)["nodes"]}
        return {}

    def leader(self) -> Machine | None:
        with contextlib.suppress(SQLAlchemyError):
            with self._database.read() as connection:
                look = leader_row.look_at(connection)
            for machine in self.all:
                if look is not None and look.holder.endswith(f":{machine.home}"):
                    return machine
        return None

    def are_whole(self) -> bool:
        """Whether all nodes answer; notes their gateways' addresses."""
        nodes = self.status()
        if not all(nodes.get(machine.node_id, {}).get("pids") for machine in self.all):
            return False
        for machine in self.all:
            if not machine.url:
                url = f"http://{nodes[machine.node_id]['address']}"
                machine.url = url if _is_healthy(url) else ""
        return all(machine.url for machine in self.all)

    def kill(self, machine: Machine) -> NodeKill:
        """Kills all processes of a node, Sagehen's and Ray's."""
        found: list[dict[str, dict[str, Any]]] = []

        def is_described() -> bool:
            found[:] = [self.status()]
            return bool(found[0].get(machine.node_id, {}).get("pids"))

        eventually(is_described)
        leader = self.leader()
        pids = [*found[0][machine.node_id]["pids"], *self._ray.order("pids", machine.host)]
        pids = list(dict.fromkeys(pids))
        url, machine.url = machine.url, ""
        began = time.monotonic()
        _kill_all(pids)
        ended = time.monotonic()
        if machine.server is not None:
            machine.server.process.wait()
        return NodeKill(
            machine=machine,
            url=url,
            led=leader is machine,
            had_ray_head=machine is self.all[0],
            began=began,
            ended=ended,
            processes=len(pids),
        )

    def start(self, machine: Machine) -> None:
        """Starts a killed node again."""
        self._ray.order("start", machine.host)
        if machine.server is not None:
            machine.server.start()
            machine.url = machine.server.url

    def keep_logs(self) -> None:
        """For what a long run finds."""
        if folder := os.environ.get("MACHINE_KILL_LOGS"):
            for machine in self.all:
                shutil.copytree(machine.home / "logs", Path(folder, machine.host))


class AnyClient:
    """boto3's clients of all gateways: calls go to one of them in turn, and are not repeated."""

    def __init__(self, machines: Machines, service: str, config: dict[str, Any]) -> None:
        self._machines = machines
        self._make = lambda url: machines.client_at(url, service, **config)
        self._clients: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **params: Any) -> Any:
            url = self._machines.url
            if url not in self._clients:
                self._clients[url] = self._make(url)
            return getattr(self._clients[url], name)(*args, **params)

        return call


def _kill_all(pids: list[int]) -> None:
    """Returns when all have ended: until then, the kernel takes connections for them."""
    with ExitStack() as stack:
        processes = []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                processes.append(os.pidfd_open(pid))
                stack.callback(os.close, processes[-1])
        # First none of them goes on: else one would see another die, as on no machine that is lost.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, number)
        for process in processes:
            ready, _, _ = select.select([process], [], [], END_SECONDS)
            assert ready, "a killed process does not end"


def persistently(call: Callable[[], Any], seconds: float = 240) -> Any:
    """What a call answers that may be repeated, as soon as somebody does."""
    found: list[Any] = []

    def is_answered() -> bool:
        with contextlib.suppress(ClientError, BotoCoreError):
            found.append(call())
        return bool(found)

    eventually(is_answered, seconds)
    return found[0]


def _is_healthy(url: str) -> bool:
    """As a load balancer asks before it sends anything."""
    with contextlib.suppress(OSError, HTTPException):
        return ask(f"{url}/_sagehen/health").status == 200
    return False


def _node_id(server: Server) -> str:
    return (server.home / "cluster" / "node-id").read_text()


@contextmanager
def running_machines(
    make_server: Callable[..., Server], outside: Server, **settings: str
) -> Iterator[Machines]:
    """Returns when all three nodes are ready. `outside` keeps the objects; `make_server` stops the
    servers that it makes."""
    outside.client("s3").create_bucket(Bucket="cluster")
    keys = outside.env
    options = {
        "endpoint": outside.url,
        "access_key_id": keys["AWS_ACCESS_KEY_ID"],
        "secret_access_key": keys["AWS_SECRET_ACCESS_KEY"],
        "region": "us-east-1",
        "virtual_hosted_style_request": "false",
    }
    folder = Path(tempfile.mkdtemp(prefix="sgh-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        url = stack.enter_context(running_postgres())
        # A server's home is known when it is made; only the third node takes its own from Ray.
        homes = {host: folder / f"home-{host}" for host in HOSTS}
        ray = _Ray(folder, homes)
        stack.callback(ray.close)
        shared = {
            "cluster": ray.address,
            "database_url": url,
            "object_store_url": "s3://cluster/kept",
            "object_store_options": json.dumps(options),
            **settings,
        }
        first = make_server(**shared, host=HOSTS[0])
        token = run_command("cluster", "token", "--home", first.home).stdout.strip()
        second = make_server(**shared, host=HOSTS[1], cluster_token=token)
        database = Database(url)
        stack.callback(database.close)
        machines = Machines(
            [
                *(
                    Machine(host, server.home, _node_id(server), server, url=server.url)
                    for host, server in zip(HOSTS, (first, second), strict=False)
                ),
                Machine(HOSTS[2], homes[HOSTS[2]], f"node-{HOSTS[2].replace('.', '-')}"),
            ],
            ray,
            database,
        )
        for server in (first, second):
            stack.callback(server.stop)
        stack.callback(machines.keep_logs)
        eventually(machines.are_whole, START_SECONDS)
        yield machines
