"""Connections that another process hands over."""

import array
import asyncio
import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sagehen.base.errors import Unavailable
from sagehen.http1 import pool as pool_module
from sagehen.http1.call import call, call_once
from sagehen.http1.handoff import ERRNO_BYTES, receive_socket
from sagehen.http1.pool import Pool


class Handing:
    """Answers each client of a Unix socket as the test says; listens, and accepts when told to."""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(0)
        self.listener.setblocking(False)
        self.address = f"handoff:{path}"
        self.path = str(path)
        self.handed = 0
        self.kept: list[socket.socket] = []

    def answer_with(self, answer: Callable[[socket.socket], None]) -> None:
        def accept() -> None:
            client, _ = self.listener.accept()
            self.handed += 1
            answer(client)

        asyncio.get_running_loop().add_reader(self.listener, accept)

    def connect_to(self, address: str) -> None:
        """Hands over connections to a `unix:` address: to clients, any stream is alike."""

        def answer(client: socket.socket) -> None:
            with client, socket.socket(socket.AF_UNIX) as inside:
                inside.connect(address.removeprefix("unix:"))
                send(client, 0, inside)

        self.answer_with(answer)


def send(client: socket.socket, number: int, *handed: socket.socket) -> None:
    rights = array.array("i", [each.fileno() for each in handed])
    controls = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if handed else []
    client.sendmsg([number.to_bytes(ERRNO_BYTES, "little")], controls)


@pytest.fixture
async def handing(short_path: Path):
    server = Handing(short_path / "hand.sock")
    yield server
    asyncio.get_running_loop().remove_reader(server.listener)
    for each in (server.listener, *server.kept):
        each.close()


@pytest.fixture
def no_descriptor_left() -> Iterator[None]:
    before = open_descriptors()
    yield
    assert open_descriptors() == before


def open_descriptors() -> list[str]:
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # of the listing itself
    return sorted(link for link in links if link.startswith("socket:"))


async def test_a_connection_is_handed_over_once_and_kept(house, echo, handing) -> None:
    fake = await house.fake(echo)
    handing.connect_to(fake.address)
    pool = Pool(handing.address, house.clock)
    answers = [await call(pool, "POST", "/invocations", b"%d" % n, 30) for n in range(5)]
    assert [answer.body for answer in answers] == [b"0", b"1", b"2", b"3", b"4"]
    assert (handing.handed, fake.connections) == (1, 1)
    pool.abort()


async def test_a_burst_gets_a_connection_for_each_request(house, handing, eventually) -> None:
    arrived = asyncio.Barrier(60)

    async def together(asked):
        await arrived.wait()
        return 200, {}, asked.body

    fake = await house.fake(together)
    handing.connect_to(fake.address)
    pool = Pool(handing.address, house.clock)
    calls = (call(pool, "POST", "/invocations", b"%d" % n, 30) for n in range(60))
    answers = await asyncio.gather(*calls)
    assert [answer.body for answer in answers] == [b"%d" % n for n in range(60)]
    assert fake.connections == 60
    pool.abort()
    await eventually(lambda: fake.lost == 60)


async def test_the_gateway_sends_an_invocation_over_it(house, echo, variant, handing) -> None:
    fake = await house.fake(echo)
    handing.connect_to(fake.address)
    fake.address = handing.address
    house.route(variant(fake))
    await house.start()
    answers = [await house.invoke(body) for body in (b"one", b"two")]
    assert [(got.status, got.body) for got in answers] == [(200, b"one"), (200, b"two")]
    assert handing.handed == 1


async def test_idle_connections_close_as_early_as_those_by_tcp(house, echo, handing) -> None:
    """The container's server ends them when it likes, as those of gunicorn after two seconds."""
    handing.connect_to((await house.fake(echo)).address)
    pool = Pool(handing.address, house.clock)
    await call(pool, "GET", "/ping", b"", 30)
    [connection] = pool._idle
    pool.close_idle(house.clock.monotonic() + pool_module.IDLE_TCP_SECONDS + 0.1)
    assert connection.transport.is_closing()


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.ENETUNREACH, errno.EMFILE])
async def test_an_error_inside_is_the_clients(handing, number, no_descriptor_left) -> None:
    def refuse(client: socket.socket) -> None:
        with client:
            send(client, number)

    handing.answer_with(refuse)
    with pytest.raises(OSError, match=os.strerror(number)):
        await receive_socket(handing.path)
    with pytest.raises(Unavailable, match=os.strerror(number)):
        await call_once(handing.address, "GET", "/ping", timeout_seconds=30)


@pytest.mark.parametrize("form", ["nothing", "short", "none", "error and one", "two"])
async def test_answers_of_no_sense_are_refused_and_leave_no_descriptor(
    handing, form, no_descriptor_left
) -> None:
    one, other = socket.socketpair()

    def answer(client: socket.socket) -> None:
        with client:
            match form:
                case "short":
                    client.send(b"\0")
                case "none":
                    send(client, 0)
                case "error and one":
                    send(client, errno.ECONNREFUSED, one)
                case "two":
                    send(client, 0, one, other)

    handing.answer_with(answer)
    with one, other, pytest.raises(ConnectionRefusedError):
        await receive_socket(handing.path)


async def test_a_server_that_says_nothing_is_left_in_time(handing, no_descriptor_left) -> None:
    handing.answer_with(handing.kept.append)
    with pytest.raises(Unavailable, match="did not answer within"):
        await call_once(handing.address, "GET", "/ping", timeout_seconds=0.05)
    [client] = handing.kept
    assert client.recv(1) == b"", "its client has gone"
    handing.kept.pop().close()


async def test_a_full_backlog_is_tried_again(house, echo, handing) -> None:
    fake = await house.fake(echo)
    first = await asyncio.to_thread(fill_backlog, handing.path)
    with pytest.raises(BlockingIOError):
        await receive_socket(handing.path)
    calling = asyncio.create_task(
        call(Pool(handing.address, house.clock), "GET", "/ping", b"", timeout_seconds=30)
    )
    await asyncio.sleep(0)
    handing.connect_to(fake.address)
    assert (await calling).status == 200
    for each in first:
        each.close()


def fill_backlog(path: str) -> list[socket.socket]:
    clients: list[socket.socket] = []
    while True:
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        try:
            client.connect(path)
        except BlockingIOError:
            client.close()
            return clients
        clients.append(client)


async def test_a_missing_socket_is_nobody_that_listens(short_path) -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        await call_once(f"handoff:{short_path}/gone", "GET", "/ping", timeout_seconds=30)
