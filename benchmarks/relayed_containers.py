"""The cost of the way over another node's agent: processor time and time of a request.

Both sides run as processes of their own on this machine: a container (a few lines, so that its own
cost is small), the relay of its node, and the client, which is the one of asynchronous requests and
transform jobs. Wall times mean something on an idle machine only; processor times also on others.

    python benchmarks/relayed_containers.py --requests 2000 --at-once 8
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import resource
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop

from sagehen.agent.container_relay import ContainerRelay
from sagehen.app.roles.common import serving_tls
from sagehen.base.clock import SYSTEM
from sagehen.base.cluster_certificates import (
    issue,
    make_authority,
    server_context,
    write_certificate,
)
from sagehen.containers.modelserver.contract import ModelAnswer
from sagehen.containers.modelserver.serving.first_bytes import FirstBytes
from sagehen.containers.modelserver.serving.server import ModelServer
from sagehen.frame.container_relay import ALPN, RelayNodes
from sagehen.frame.relay_connector import RelayConnector
from sagehen.link.upstream import open_upstreams
from sagehen.services.sagemaker.transform.runner.invocation import Invoker


def serve_container(folder: Path, ready: Connection) -> None:
    """A model server without a model, and a container over HTTP; both answer with the body."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                length = next(
                    int(line[15:]) for line in lines if line.startswith(b"content-length")
                )
                body = await reader.readexactly(length)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def serve() -> None:
        server = ModelServer(
            lambda request: request.respond(ModelAnswer(200, bytes(request.body))),
            max_body_bytes=256 * 2**20,
            clock=SYSTEM,
            max_answer_bytes=256 * 2**20,
            slots=lambda: 64,
        )
        loop = asyncio.get_running_loop()
        await loop.create_unix_server(lambda: FirstBytes(server, folder), str(folder / "s.sock"))
        http = await asyncio.start_server(handle, "127.0.0.1", 0, limit=2**20)
        ready.send(http.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    uvloop.run(serve())


def serve_relay(folder: Path, port: int, ready: Connection) -> None:
    import socket

    addresses = [f"link:{folder}/s.sock", f"tcp:127.0.0.1:{port}"]
    relay = ContainerRelay(lambda _, number: addresses[number], lambda _: None, SYSTEM)

    async def no_http(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError(scope)

    async def serve() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        context = server_context(folder / "far")
        async with serving_tls(listener, context, no_http, {ALPN: relay.accept}):
            ready.send(listener.getsockname()[1])
            await asyncio.Event().wait()

    uvloop.run(serve())


async def measure(
    upstreams: Any, body: bytes, requests: int, at_once: int, pids: dict[str, int]
) -> dict[str, float]:
    invoker = Invoker("text/csv", None, 600)
    left = iter(range(requests))

    async def ask() -> None:
        for _ in left:
            answer = await invoker.ask((upstreams,), body)
            assert len(answer.body) == len(body)

    await invoker.ask((upstreams,), body)
    before, began = cpu_seconds(pids), time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(at_once)))
    seconds, after = time.perf_counter() - began, cpu_seconds(pids)
    used = {name: (after[name] - before[name]) / requests * 1e6 for name in before}
    return {"requests/s": requests / seconds, **{f"{name} µs": each for name, each in used.items()}}


def cpu_seconds(pids: dict[str, int]) -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = {"client": used.ru_utime + used.ru_stime}
    for name, pid in pids.items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


async def run(folder: Path, port: int, relay_port: int, pids: dict[str, int], options: Any) -> None:
    nodes = RelayNodes(
        epoch=1,
        addresses={"far": f"127.0.0.1:{relay_port}"},
        certificates=str(folder / "near"),
    )
    connector = RelayConnector(lambda: nodes)
    ways = {
        "link, local": (f"link:{folder}/s.sock", True),
        "link, relayed": ("link:node:far/i-1/0", True),
        "http, local": (f"tcp:127.0.0.1:{port}", True),
        "http, relayed": ("node:far/i-1/1", True),
        "http, local, new connections": (f"tcp:127.0.0.1:{port}", False),
        "http, relayed, new connections": ("node:far/i-1/1", False),
    }
    for size in options.sizes:
        requests = max(20, min(options.requests, options.bytes // size))
        for name, (address, reuses) in ways.items():
            upstreams = open_upstreams(
                address, SYSTEM, reuses_connections=reuses, connector=connector
            )
            found = await measure(upstreams, bytes(size), requests, options.at_once, pids)
            rounded = {key: round(value, 1) for key, value in found.items()}
            print(json.dumps({"way": name, "bytes": size, "requests": requests, **rounded}))
            upstreams.abort()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 100_000, 10_000_000])
    parser.add_argument("--bytes", type=int, default=500_000_000, help="the most of one way")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="sgr") as name:
        folder = Path(name)
        authority = make_authority()
        for node_id in ("near", "far"):
            write_certificate(folder / node_id, issue(authority, node_id))
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        container = context.Process(target=serve_container, args=(folder, theirs), daemon=True)
        container.start()
        port = ours.recv()
        relay = context.Process(target=serve_relay, args=(folder, port, theirs), daemon=True)
        relay.start()
        relay_port = ours.recv()
        pids = {"relay": relay.pid or 0, "container": container.pid or 0}
        try:
            uvloop.run(run(folder, port, relay_port, pids, options))
        finally:
            for each in (relay, container):
                each.kill()
                each.join()


if __name__ == "__main__":
    main()
