"""Containers with networks of their own."""

import asyncio
import json
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from sagehen.agent.launchers import own_network
from sagehen.agent.launchers.launcher import LaunchPlan, NetworkPlan
from sagehen.agent.launchers.own_network import find_nameservers
from sagehen.agent.launchers.process import ContainerProcess, ProcessLauncher
from sagehen.agent.launchers.walls import NO_WALLS, Wall, Walls
from sagehen.base.errors import Unavailable
from sagehen.http1.call import call_once
from support.fixtures.gateway import eventually
from support.namespaces import may_unshare_network

ALL_WALLS = frozenset(Wall)
ISOLATED = NetworkPlan(outgoing=False)

TRYING = """
import json, socket, sys

def attempt(address, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_INET, kind) as connection:
        connection.settimeout(60)
        try:
            connection.connect(tuple(address))
            connection.sendall(b"question")
            if kind == socket.SOCK_STREAM:
                connection.shutdown(socket.SHUT_WR)
            return connection.recv(1000).decode()
        except OSError as error:
            return type(error).__name__

tcp, udp = json.loads(sys.argv[1])
answers = [attempt(address) for address in tcp]
answers += [attempt(address, socket.SOCK_DGRAM) for address in udp]
print(json.dumps(answers))
"""


def plan(folder: Path, network: NetworkPlan | None, *command: str) -> LaunchPlan:
    return LaunchPlan(
        instance_id="i-1",
        name="primary",
        command=command,
        environment={"PATH": "/usr/bin:/bin"},
        folder=folder,
        log=folder / "log",
        log_bytes=2**20,
        network=network,
    )


async def attempts(
    folder: Path, network: NetworkPlan | None, tcp: list, udp: list | None = None
) -> list[str]:
    """What a container gets that connects to these addresses."""
    command = (sys.executable, "-c", TRYING, json.dumps([tcp, udp or []]))
    process = await ProcessLauncher().start(plan(folder, network, *command))
    assert await process.wait() == 0, process.last_lines()
    return json.loads(process.last_lines()[-1])


def own_address() -> str:
    """An address of this machine that is not of its loopback device."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


@asynccontextmanager
async def answering(text: bytes, host: str = "127.0.0.1") -> AsyncIterator[tuple[str, int]]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b"question"
        writer.write(text)
        writer.close()

    server = await asyncio.start_server(answer, host, 0)
    async with server:
        yield server.sockets[0].getsockname()[:2]


@may_unshare_network
async def test_an_isolated_container_reaches_nothing_but_itself(tmp_path: Path) -> None:
    async with answering(b"here") as address:
        tcp = [address, (own_address(), address[1]), ("192.0.2.1", 80)]
        answers = await attempts(tmp_path, ISOLATED, tcp)
        assert answers[0] == "ConnectionRefusedError"
        assert set(answers[1:]) == {"OSError"}, "the network is unreachable"
        assert (await attempts(tmp_path, None, tcp[:1])) == ["here"]
    own = "import socket; s = socket.create_server(('', 80)); socket.create_connection(('::1', 80))"
    process = await ProcessLauncher().start(
        plan(tmp_path, ISOLATED, sys.executable, "-c", own.replace("::1", "localhost"))
    )
    assert await process.wait() == 0, process.last_lines()


@may_unshare_network
async def test_one_with_a_network_reaches_what_the_machine_does(tmp_path: Path) -> None:
    async with answering(b"outside", own_address()) as there, answering(b"server") as server:
        network = NetworkPlan(outgoing=True, server_port=server[1])
        closed = (there[0], free_port())
        answers = await attempts(tmp_path, network, [there, server, closed, ("127.0.0.1", 9)])
    assert answers[:2] == ["outside", "server"]
    assert answers[2] in ("ConnectionResetError", "", "BrokenPipeError"), "nobody listens there"
    assert answers[3] == "ConnectionRefusedError", "the machine's loopback device is its own"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@may_unshare_network
async def test_names_are_asked_of_the_machines_name_server(tmp_path: Path, monkeypatch) -> None:
    """Also one at the machine's own loopback device, as systemd's at 127.0.0.53."""
    (tmp_path / "resolv.conf").write_text("nameserver 127.77.255.53\n")
    monkeypatch.setattr(own_network, "RESOLV_CONF", tmp_path / "resolv.conf")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as names:
        try:
            names.bind(("127.77.255.53", 53))
        except PermissionError:
            pytest.skip("this user may not listen at port 53")

        def serve() -> None:
            data, client = names.recvfrom(100)
            names.sendto(b"answer to " + data, client)

        thread = threading.Thread(target=serve)
        thread.start()
        network = NetworkPlan(outgoing=True)
        answers = await attempts(tmp_path, network, [], [("127.77.255.53", 53), ("192.0.2.9", 9)])
        thread.join()
    assert answers == ["answer to question", "ConnectionRefusedError"]


SERVING = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(sys.argv[1].encode())
http.server.HTTPServer(("", 8080), Answer).serve_forever()
"""


async def serving(folder: Path, name: str) -> tuple[ContainerProcess, str]:
    network = NetworkPlan(outgoing=True, handoff=folder / f"{name}.sock")
    command = (sys.executable, "-c", SERVING, name)
    process = await ProcessLauncher().start(plan(folder, network, *command))
    return process, f"handoff:{network.handoff}"


async def ping(address: str) -> str:
    while True:
        try:
            return (await call_once(address, "GET", "/ping", timeout_seconds=30)).text
        except Unavailable:
            await asyncio.sleep(0.01)


@may_unshare_network
async def test_two_listen_on_one_port_and_are_told_apart(short_path: Path) -> None:
    started = [await serving(short_path, name) for name in ("one", "other")]
    assert [await ping(address) for _, address in started] == ["one", "other"]
    assert await started[0][0].listening_ports() == [8080]
    for process, _ in started:
        process.kill()
        await process.wait()


@may_unshare_network
async def test_nothing_stays_behind_when_it_ends(short_path: Path) -> None:
    launcher = ProcessLauncher()
    before = os.listdir("/proc/self/fd")
    network = NetworkPlan(outgoing=True, handoff=short_path / "s")
    process = await launcher.start(plan(short_path, network, "sleep", "1000"))
    assert len(launcher._orphans._expected) == 3, "the container, and two that serve it"
    helpers = [psutil.Process(pid) for pid in launcher._orphans._expected - {process.pid}]
    # Not before they have begun: until then they are copies of the one that forked them.
    await eventually(lambda: {each.name() for each in helpers} == {"relay", "hand_over"})
    assert {each.cmdline()[0] for each in helpers} == {"sagehen relay", "sagehen hand_over"}
    process.kill()
    await process.wait()
    await eventually(lambda: not launcher._orphans._expected)
    await eventually(lambda: len(os.listdir("/proc/self/fd")) == len(before))


@may_unshare_network
async def test_one_that_ends_at_once_is_no_failure_to_start(short_path: Path) -> None:
    network = NetworkPlan(outgoing=True, handoff=short_path / "s")
    process = await ProcessLauncher().start(plan(short_path, network, "sh", "-c", "exit 7"))
    assert await process.wait() == 7


@may_unshare_network
@pytest.mark.parametrize("walls", [ALL_WALLS, NO_WALLS])
async def test_hosts_of_a_job_share_a_network_that_is_not_the_machines(
    tmp_path: Path, walls: Walls
) -> None:
    (tmp_path / "ml").mkdir()
    launcher = ProcessLauncher(walls=walls)
    waits = replace(plan(tmp_path, ISOLATED, "sleep", "1000"), base=tmp_path / "ml")
    first = await launcher.start(waits)
    shared = replace(ISOLATED, shared_with=first.pid)
    second = await launcher.start(replace(waits, network=shared))
    namespaces = [os.readlink(f"/proc/{pid}/ns/net") for pid in (first.pid, second.pid, "self")]
    assert namespaces[0] == namespaces[1] != namespaces[2]
    first.kill()
    await first.wait()
    third = await launcher.start(replace(waits, network=shared))
    alone = os.readlink(f"/proc/{third.pid}/ns/net")
    assert alone not in (namespaces[2], namespaces[1])
    for each in (second, third):
        each.kill()
        await each.wait()


@may_unshare_network
async def test_it_may_have_its_own_folder_too(tmp_path: Path) -> None:
    (tmp_path / "ml").mkdir()
    given = replace(
        plan(tmp_path, ISOLATED, "sh", "-c", "echo 1 > /opt/ml/out"), base=tmp_path / "ml"
    )
    process = await ProcessLauncher(walls=ALL_WALLS).start(given)
    assert await process.wait() == 0, process.last_lines()
    assert (tmp_path / "ml" / "out").exists()


def test_name_servers_are_those_that_the_c_library_asks() -> None:
    text = "# x\nsearch a\nnameserver 10.0.0.1\nnameserver fe80::1%eth0\nnameserver 10.0.0.1\n"
    assert find_nameservers(text) == ["10.0.0.1"]
    assert find_nameservers("") == ["127.0.0.1"]
    many = "".join(f"nameserver 10.0.0.{number}\n" for number in range(5))
    assert find_nameservers(many) == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]
