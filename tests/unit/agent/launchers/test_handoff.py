"""Ports in other network namespaces."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sagehen.agent.launchers.handoff import open_handoff
from sagehen.agent.launchers.orphans import Orphans
from sagehen.base.errors import Unavailable
from sagehen.http1.call import call_once
from support.namespaces import in_own_network, may_unshare_network

SERVING = """
import http.server, os, sys
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = sys.argv[0].encode() + os.readlink("/proc/self/ns/net").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Answer)
print(flush=True)
server.serve_forever()
"""
SILENT = "\nimport time\nprint(flush=True)\ntime.sleep(1000)\n"
NOBODY = 65534


async def answer(address: str) -> str:
    return (await call_once(address, "GET", "/ping", timeout_seconds=30)).text


@may_unshare_network
async def test_two_containers_answer_on_one_port(short_path: Path) -> None:
    with in_own_network(SERVING) as one, in_own_network(SERVING) as other:
        handoffs = [
            await open_handoff(process.pid, short_path / f"{process.pid}.sock", Orphans())
            for process in (one, other)
        ]
        answers = [await answer(handoff.address) for handoff in handoffs]
        namespaces = [os.readlink(f"/proc/{each.pid}/ns/net") for each in (one, other)]
        assert answers == [f"-c{namespace}" for namespace in namespaces]
        assert len(set(namespaces)) == 2
        for handoff in handoffs:
            await handoff.close()
        assert os.listdir(short_path) == []


@may_unshare_network
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
async def test_a_namespace_within_a_user_namespace_is_joined_too(short_path: Path) -> None:
    with in_own_network(SERVING, user=NOBODY) as process:
        handoff = await open_handoff(process.pid, short_path / "s", Orphans())
        assert "net:[" in await answer(handoff.address)
        await handoff.close()


AS_ANOTHER_USER = """
import os, socket, subprocess, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
reader, writer = os.pipe()
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[2])
listener.listen(5)
command = ["/usr/bin/python3", "-ISs", "-c", sys.stdin.read(), str(os.getpid()), str(writer)]
command += [str(listener.fileno()), sys.argv[1], "8080"]
program = subprocess.Popen(command, pass_fds=(writer, listener.fileno()))
os.close(writer)
failure = os.read(reader, 64).decode()
if failure:
    sys.exit(failure)
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[2])
_, [handed], _, _ = socket.recv_fds(client, 4, 1)
inside = socket.socket(fileno=handed)
inside.setblocking(True)
inside.send(b"GET /ping HTTP/1.0\\r\\n\\r\\n")
answer = b""
while part := inside.recv(1000):
    answer += part
print(answer.decode().split()[-1])
program.kill()
"""


@may_unshare_network
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_who_is_not_root_may_join_its_own_namespaces_and_no_others(tmp_path: Path) -> None:
    from sagehen.agent.launchers import hand_over

    def run(pid: int, name: str) -> str:
        return subprocess.run(
            ["/usr/bin/python3", "-c", AS_ANOTHER_USER, str(pid), f"/tmp/{name}-{pid}.sock"],
            input=Path(hand_over.__file__).read_text(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd="/",
        ).stdout

    with in_own_network(SERVING, user=NOBODY) as own, in_own_network(SERVING) as other:
        try:
            assert "net:[" in run(own.pid, "own")
            assert run(other.pid, "other").strip() == "1", "EPERM"
        finally:
            for name, process in (("own", own), ("other", other)):
                Path(f"/tmp/{name}-{process.pid}.sock").unlink(missing_ok=True)


@may_unshare_network
async def test_a_container_that_does_not_listen_refuses(short_path: Path) -> None:
    with in_own_network(SILENT) as process:
        handoff = await open_handoff(process.pid, short_path / "s", Orphans())
        with pytest.raises(Unavailable, match="Connection refused"):
            await answer(handoff.address)
        await handoff.close()


@may_unshare_network
async def test_it_ends_with_the_container_and_is_waited_for(short_path: Path) -> None:
    with in_own_network(SILENT) as process:
        handoff = await open_handoff(process.pid, short_path / "s", Orphans())
    await asyncio.wait_for(asyncio.shield(handoff.helper.ended), 60)
    with pytest.raises(Unavailable, match="Connection refused"):
        await answer(handoff.address)
    await handoff.close()
    await handoff.close()
    assert os.listdir(short_path) == []


@may_unshare_network
async def test_a_socket_left_behind_is_replaced_and_is_private(short_path: Path) -> None:
    path = short_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with in_own_network(SERVING) as process:
        handoff = await open_handoff(process.pid, path, Orphans())
        assert path.stat().st_mode & 0o777 == 0o600
        assert "net:[" in await answer(handoff.address)
        await handoff.close()


async def test_a_process_that_is_gone_is_an_error_and_leaves_nothing(short_path: Path) -> None:
    ended = await asyncio.create_subprocess_exec("true")
    await ended.wait()
    orphans = Orphans()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ProcessLookupError):
        await open_handoff(ended.pid, short_path / "s", orphans)
    assert os.listdir(short_path) == []
    assert (len(os.listdir("/proc/self/fd")), orphans._expected) == (before, set())


AGENT = """
import asyncio, sys
from pathlib import Path
from sagehen.agent.launchers.handoff import open_handoff
from sagehen.agent.launchers.orphans import Orphans
async def main():
    handoff = await open_handoff(int(sys.argv[1]), Path(sys.argv[2]), Orphans())
    print(handoff.helper.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@may_unshare_network
async def test_the_kernel_ends_it_with_the_agent(short_path: Path) -> None:
    with in_own_network(SILENT) as process:
        agent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", AGENT, f"{process.pid}", f"{short_path}/s", stdout=subprocess.PIPE
        )
        assert agent.stdout is not None
        program = os.pidfd_open(int(await agent.stdout.readline()))
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(program, ended.set)
        try:
            agent.send_signal(signal.SIGKILL)
            await asyncio.wait_for(ended.wait(), 60)
        finally:
            asyncio.get_running_loop().remove_reader(program)
            os.close(program)
            await agent.wait()
