"""A Docker Engine in memory, behind a Unix socket: it refuses what the real one refuses.

Its containers run nothing: a test writes their output and ends them.
"""

import asyncio
import json
import re
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["FakeContainer", "FakeEngine", "serving_engine"]

API = "1.41"
LEAST_MEMORY = 6 * 2**20
TOP_LEVEL = {
    *("Image", "Hostname", "Cmd", "Env", "Labels", "AttachStdout", "AttachStderr", "HostConfig"),
    *("Entrypoint", "NetworkingConfig"),
}
HOST_CONFIG = {
    *("NetworkMode", "Mounts", "ShmSize", "Ulimits", "OomScoreAdj", "LogConfig", "RestartPolicy"),
    *("Memory", "MemorySwap", "NanoCpus", "PidsLimit", "DeviceRequests"),
}
SIGNALS = {"SIGTERM": 143, "SIGKILL": 137}


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class FakeContainer:
    id: str
    name: str
    request: dict[str, Any]
    state: dict[str, Any] = field(
        default_factory=lambda: {"Status": "created", "Running": False, "ExitCode": 0, "Pid": 0}
    )
    signals: list[str] = field(default_factory=list)
    outputs: list[asyncio.StreamWriter] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    stubborn: bool = False

    def write(self, data: bytes, stream: int = 1) -> None:
        for output in self.outputs:
            output.write(struct.pack(">BxxxL", stream, len(data)) + data)

    def end(self, code: int = 0, out_of_memory: bool = False) -> None:
        self.state |= {"Status": "exited", "Running": False, "ExitCode": code, "Pid": 0}
        self.state["OOMKilled"] = out_of_memory
        self.ended.set()
        for output in self.outputs:
            output.close()


class FakeEngine:
    def __init__(self) -> None:
        self.images: dict[str, dict[str, Any]] = {}
        self.registry: dict[str, dict[str, Any]] = {}
        """what can be pulled"""
        self.pulls: list[str] = []
        self.pull_gate: asyncio.Event | None = None
        self.containers: dict[str, FakeContainer] = {}
        self.networks: dict[str, dict[str, Any]] = {}
        self.address = "172.30.0.2"
        self.start_error: str | None = None
        self.anonymous_bytes = 5_000
        self.processes = 3
        """of each container"""

    def add_image(self, name: str, labels: dict[str, str] | None = None, user: str = "") -> None:
        self.images[name] = {"Config": {"Labels": labels, "User": user}}

    def add_container(self, name: str, labels: dict[str, str]) -> FakeContainer:
        container = FakeContainer(name * 8, name, {"Labels": labels})
        self.containers[container.id] = container
        return container

    @property
    def only(self) -> FakeContainer:
        (container,) = self.containers.values()
        return container

    def get_version(self) -> Any:
        return {"ApiVersion": API}

    def get_ping(self) -> Any:
        return None

    def get_image(self, name: str) -> Any:
        if name not in self.images:
            raise Refused(404, f"No such image: {name}")
        return self.images[name]

    async def pull(self, query: dict[str, str]) -> list[dict[str, Any]]:
        name = f"{query['fromImage']}:{query['tag']}"
        self.pulls.append(name)
        if self.pull_gate is not None:
            await self.pull_gate.wait()
        if name not in self.registry:
            error = f"manifest for {name} not found: manifest unknown"
            return [{"status": "Pulling"}, {"error": error, "errorDetail": {"message": error}}]
        self.images[name] = self.registry[name]
        return [{"status": "Pulling"}, {"status": "Done"}]

    def create(self, query: dict[str, str], request: dict[str, Any]) -> Any:
        host = request["HostConfig"]
        if unknown := (request.keys() - TOP_LEVEL) | (host.keys() - HOST_CONFIG):
            raise AssertionError(f"The engine would ignore {unknown}.")
        if any(container.name == query["name"] for container in self.containers.values()):
            raise Refused(409, f'Conflict. The container name "/{query["name"]}" is in use.')
        self.get_image(request["Image"])
        if host.get("Memory", LEAST_MEMORY) < LEAST_MEMORY:
            raise Refused(400, "Minimum memory limit allowed is 6MB")
        if host.get("MemorySwap", host.get("Memory")) != host.get("Memory"):
            raise Refused(400, "Minimum memoryswap limit should be larger than memory limit")
        joined = request.get("NetworkingConfig", {}).get("EndpointsConfig", {})
        mode = host["NetworkMode"]
        if mode != "none" and mode not in self.networks:
            raise Refused(404, f"network {mode} not found")
        if joined.keys() - {mode}:
            raise Refused(400, "Container cannot be connected to network endpoints")
        for mount in host["Mounts"]:
            if not Path(mount["Source"]).exists():
                raise Refused(400, f"bind source path does not exist: {mount['Source']}")
        number = f"{len(self.containers) + 1:064x}"
        self.containers[number] = FakeContainer(number, query["name"], request)
        return {"Id": number, "Warnings": []}

    def container(self, number: str) -> FakeContainer:
        if number not in self.containers:
            raise Refused(404, f"No such container: {number}")
        return self.containers[number]

    def start(self, number: str) -> None:
        container = self.container(number)
        if self.start_error is not None:
            raise Refused(400, self.start_error)
        if container.state["Running"]:
            raise Refused(304, "")
        container.state |= {"Status": "running", "Running": True, "Pid": 4_000_000}

    def kill(self, number: str, query: dict[str, str]) -> None:
        container = self.container(number)
        if not container.state["Running"]:
            raise Refused(409, f"Container {number} is not running")
        container.signals.append(query["signal"])
        if query["signal"] == "SIGKILL" or not container.stubborn:
            container.end(SIGNALS[query["signal"]])

    def describe(self, number: str) -> Any:
        container = self.container(number)
        mode = container.request["HostConfig"]["NetworkMode"]
        address = self.address if container.state["Running"] and mode != "none" else ""
        networks = {mode: {"IPAddress": address}}
        return {"State": container.state, "NetworkSettings": {"Networks": networks}}

    def stats(self, number: str, query: dict[str, str]) -> Any:
        self.container(number)
        assert query == {"stream": "False", "one-shot": "True"}, "A second sample takes a second."
        memory = {"usage": 9_000, "stats": {"anon": self.anonymous_bytes, "file_mapped": 100}}
        return {
            "memory_stats": memory,
            "pids_stats": {"current": self.processes},
            "cpu_stats": {"cpu_usage": {"total_usage": 2_500_000_000}},
        }

    def remove(self, number: str, query: dict[str, str]) -> None:
        container = self.container(number)
        if container.state["Running"]:
            if query.get("force") != "True":
                raise Refused(409, "You cannot remove a running container")
            container.end(137)
        del self.containers[number]

    def list_containers(self, query: dict[str, str]) -> Any:
        assert query["all"] == "1"
        return [
            {"Id": container.id, "Labels": container.request["Labels"]}
            for container in self.containers.values()
            if _matches(query, container.request["Labels"])
        ]

    def create_network(self, request: dict[str, Any]) -> Any:
        name = request["Name"]
        if name in self.networks and request["CheckDuplicate"]:
            raise Refused(409, f"network with name {name} already exists")
        config = [{"Subnet": "127.30.0.0/16", "Gateway": "127.0.0.1"}]
        self.networks[name] = {**request, "Id": name, "IPAM": {"Config": config}}
        return {"Id": name}

    def get_network(self, name: str) -> Any:
        if name not in self.networks:
            raise Refused(404, f"network {name} not found")
        return self.networks[name]

    def remove_network(self, name: str) -> None:
        self.get_network(name)
        users = (
            container
            for container in self.containers.values()
            if container.state["Running"] and container.request["HostConfig"]["NetworkMode"] == name
        )
        if any(users):
            raise Refused(403, f"error while removing network: network {name} has active endpoints")
        del self.networks[name]

    def list_networks(self, query: dict[str, str]) -> Any:
        return [network for network in self.networks.values() if _matches(query, network["Labels"])]

    async def answer(self, method: str, target: str, body: bytes) -> Any:
        """Raises Refused."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        path = unquote(parts.path)
        if path == "/version":
            return self.get_version()
        version, _, rest = path.removeprefix("/v").partition("/")
        if version != API:
            raise Refused(400, f"client version {version} is too new. Maximum is {API}")
        request = json.loads(body) if body else {}
        for verb, pattern, function, arguments in (
            ("GET", "_ping", self.get_ping, ()),
            ("GET", "images/(.+)/json", self.get_image, ()),
            ("POST", "images/create", self.pull, (query,)),
            ("POST", "containers/create", self.create, (query, request)),
            ("POST", "containers/(.+)/start", self.start, ()),
            ("POST", "containers/(.+)/kill", self.kill, (query,)),
            ("POST", "containers/(.+)/wait", self.wait, ()),
            ("GET", "containers/json", self.list_containers, (query,)),
            ("GET", "containers/(.+)/json", self.describe, ()),
            ("GET", "containers/(.+)/stats", self.stats, (query,)),
            ("DELETE", "containers/(.+)", self.remove, (query,)),
            ("POST", "networks/create", self.create_network, (request,)),
            ("GET", "networks", self.list_networks, (query,)),
            ("GET", "networks/(.+)", self.get_network, ()),
            ("DELETE", "networks/(.+)", self.remove_network, ()),
        ):
            match = re.fullmatch(pattern, rest)
            if match is not None and verb == method:
                answered = function(*match.groups(), *arguments)
                return await answered if asyncio.iscoroutine(answered) else answered
        raise AssertionError(f"The fake engine does not know {method} {target}.")

    async def wait(self, number: str) -> Any:
        container = self.container(number)
        await container.ended.wait()
        return {"StatusCode": container.state["ExitCode"]}


def _matches(query: dict[str, str], labels: dict[str, str]) -> bool:
    filters = json.loads(query["filters"])["label"]
    return all(labels.get(name) == value for name, value in (one.split("=", 1) for one in filters))


@asynccontextmanager
async def serving_engine(folder: Path) -> AsyncIterator[FakeEngine]:
    """An engine at `engine.sock` in the folder."""
    engine = FakeEngine()
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            while await _serve_one(engine, reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    server = await asyncio.start_unix_server(serve, folder / "engine.sock")
    try:
        yield engine
    finally:
        for container in engine.containers.values():
            container.end(137)
        async with asyncio.timeout(60):
            while any(thread.name.startswith("log ") for thread in threading.enumerate()):  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        server.close()
        for writer in writers:
            writer.close()


async def _serve_one(
    engine: FakeEngine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Answers a request; False if the connection is no longer HTTP's, or has ended."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, target, _ = head[0].split()
    fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(fields.get("content-length", "0")))
    if attached := re.search("/containers/(.+)/attach", target):
        upgrade = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        writer.write(upgrade)
        engine.container(attached[1]).outputs.append(writer)
        return False
    try:
        status, answer = 200, await engine.answer(method, target, body)
    except Refused as refused:
        status, answer = refused.status, {"message": str(refused)}
    lines = answer if isinstance(answer, list) and "/images/create" in target else [answer]
    data = b"".join(json.dumps(line).encode() + b"\r\n" for line in lines)
    if answer is None:
        status, data = 204, b""
    if isinstance(answer, list) and "/images/create" in target:
        chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
        return True
    writer.write(
        f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n".encode()
        + data
    )
    await writer.drain()
    return True
