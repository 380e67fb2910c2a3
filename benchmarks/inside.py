"""Looks into a running server from outside: its processes, routes and in-flight table."""

import mmap
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
from sides import Server

from sagehen.frame.routes import InstanceRoute, RouteTable
from sagehen.gateway.routing.inflight import InflightTable

MIB = 2**20
MODEL_SERVERS = "model servers, mean"
STOP_SECONDS = 1.0


@dataclass(frozen=True)
class Inside:
    """One running server."""

    server: Server

    def roles(self) -> dict[str, int]:
        """The process id of each of the server's own processes, by a name such as `gateway-0`."""
        return {"supervisor": self.server.pid, **dict(self._roles())}

    def gateways(self) -> dict[str, int]:
        return {role: pid for role, pid in self._roles() if role.startswith("gateway")}

    def instances(self) -> dict[str, int]:
        """The process id of each instance's container, by the instance's id."""
        agent = dict(self._roles()).get("agent")
        instances = {}
        for pid in _children(agent) if agent else ():
            try:
                folder = Path(f"/proc/{pid}/cwd").readlink()
            except OSError:
                continue  # It has ended since it was listed.
            if folder.is_relative_to(self.server.home / "instances"):
                instances[folder.parent.name] = pid
        return instances

    def routed(self) -> dict[str, InstanceRoute]:
        """The instances that gateways send to, by id."""
        return {
            instance.instance_id: instance
            for route in self._table().routes.values()
            for variant in route.variants
            for instance in variant.instances
        }

    def endpoint_instances(self, endpoint: str) -> list[str]:
        """The ids of the instances of one endpoint."""
        return [
            instance.instance_id
            for route in self._table().routes.values()
            if route.endpoint_name == endpoint
            for variant in route.variants
            for instance in variant.instances
        ]

    def _table(self) -> RouteTable:
        return msgspec.json.decode(self._run("routes.json").read_bytes(), type=RouteTable)

    def outstanding(self, instance: InstanceRoute) -> int:
        """Returns the requests that the gateways have outstanding at an instance."""
        column = instance.inflight_column
        if column is None:
            raise ValueError(f"{instance.instance_id} has no column in the in-flight table.")
        with self._run("board").open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return InflightTable(memoryview(mapped).cast("q"), 0).outstanding(column)

    def left_in_flight(self) -> int:
        """Returns the cells of the in-flight table that are not 0: counts and waiting times."""
        cells = memoryview(self._run("board").read_bytes()).cast("q")
        return sum(1 for cell in cells if cell)

    def is_started_gateway(self, pid: int) -> bool:
        """Returns whether the gateway has mapped its in-flight table; next it takes connections."""
        try:
            return str(self._run("board")) in Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            return False

    def memory_mib(self) -> dict[tuple[str, int], float]:
        """Resident memory, by name and process id: of each role, and the mean of the containers
        that serve, under the process id 0.

        Resident and not proportional: what one process has must not seem to grow because another,
        that shared its libraries, was killed.
        """
        seen = {(role, pid): resident_mib(pid) for role, pid in self.roles().items()}
        routed = self.routed()
        serving = [resident_mib(pid) for key, pid in self.instances().items() if key in routed]
        if serving := [mib for mib in serving if mib]:
            seen[MODEL_SERVERS, 0] = sum(serving) / len(serving)
        return {key: mib for key, mib in seen.items() if mib}

    def _roles(self) -> Iterator[tuple[str, int]]:
        for pid in _children(self.server.pid):
            words = _command(pid)
            names = [word.rpartition(".")[2] for word in words if ".roles." in word]
            numbers = [word.partition("=")[2] for word in words if word.startswith("--number=")]
            if names:
                yield "-".join([names[0], *numbers]), pid

    def _run(self, name: str) -> Path:
        return self.server.home / "run" / name


def resident_mib(pid: int) -> float:
    """0 where it has ended."""
    try:
        return float(psutil.Process(pid).memory_info().rss / MIB)
    except psutil.Error:
        return 0.0


def wait_until_stopped(pid: int) -> None:
    """After SIGSTOP: from here on it does nothing."""
    deadline = time.monotonic() + STOP_SECONDS
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        if time.monotonic() > deadline:
            raise SystemExit(f"The process {pid} does not stop.")


def client_ports(pid: int) -> frozenset[int]:
    """Returns the remote ports of a gateway's connections."""
    connections = psutil.Process(pid).net_connections("tcp")
    return frozenset(connection.raddr.port for connection in connections if connection.raddr)


def is_healthy(instance: InstanceRoute) -> bool:
    """Its container answers `/ping` with 200."""
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(1)
            asking.connect(instance.address.partition(":")[2])
            asking.sendall(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return asking.recv(100).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def _children(pid: int) -> list[int]:
    try:
        threads = list(Path(f"/proc/{pid}/task").glob("*/children"))
        return [int(child) for thread in threads for child in thread.read_text().split()]
    except OSError:
        return []


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []
