"""The loop of the program that hands over connections; in a thread, in this namespace."""

import _socket
import asyncio
import errno
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from sagehen.agent.launchers import hand_over
from sagehen.http1.handoff import receive_socket
from support.fixtures.gateway import eventually


@dataclass
class Running:
    path: str
    server: hand_over._Server
    thread: threading.Thread
    end_target: int


@pytest.fixture
def container() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listening:
        yield listening


@pytest.fixture
def running(container: socket.socket, short_path: Path) -> Iterator[Running]:
    """The server, with a pipe in place of the target's pidfd."""
    path = short_path / "hand.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(512)
    target, end_target = os.pipe()
    server = hand_over._Server(listener.detach(), target, container.getsockname()[1])
    thread = threading.Thread(target=server.run)
    thread.start()
    running = Running(str(path), server, thread, end_target)
    yield running
    os.close(running.end_target)
    thread.join()
    os.close(target)
    server._poll.close()
    server._listener.close()


async def test_a_connection_leads_to_the_port(running, container) -> None:
    for text in (b"one", b"two"):
        with await receive_socket(running.path) as client:
            inside, _ = container.accept()
            with inside:
                client.send(text)
                assert inside.recv(10) == text
                client.close()
                assert inside.recv(10) == b"", "no copy keeps the connection open"


async def test_nobody_who_listens_is_a_refusal(running, container) -> None:
    container.close()
    for _ in range(300):
        with pytest.raises(ConnectionRefusedError):
            await receive_socket(running.path)
    assert running.server._pending == {}


async def test_many_at_once_get_one_each(running, container) -> None:
    count = 300
    container.listen(count)
    received = await asyncio.gather(*(receive_socket(running.path) for _ in range(count)))
    accepted = [container.accept()[0] for _ in range(count)]
    assert {each.getpeername() for each in accepted} == {each.getsockname() for each in received}
    for each in (*accepted, *received):
        each.close()


async def test_who_waits_for_a_slow_container_is_connected_when_it_accepts(
    running, container, monkeypatch
) -> None:
    monkeypatch.setattr(hand_over, "_CONNECT_SECONDS", 600.0)
    clients = [asyncio.create_task(receive_socket(running.path)) for _ in range(3)]
    await eventually(lambda: sum(client.done() for client in clients) == 2)
    await eventually(lambda: running.server._pending)
    accepted = [(await asyncio.to_thread(container.accept))[0] for _ in clients]
    received = await asyncio.gather(*clients)
    assert {each.getpeername() for each in accepted} == {each.getsockname() for each in received}
    for each in (*accepted, *received):
        each.close()


async def test_who_cannot_be_connected_in_time_is_told(running, container, monkeypatch) -> None:
    monkeypatch.setattr(hand_over, "_CONNECT_SECONDS", 0.05)
    clients = [asyncio.create_task(receive_socket(running.path)) for _ in range(10)]
    answers = await asyncio.gather(*clients, return_exceptions=True)
    late = [each for each in answers if isinstance(each, OSError)]
    assert late
    assert {each.errno for each in late} == {errno.ETIMEDOUT}
    for each in answers:
        if isinstance(each, socket.socket):
            each.close()


async def test_more_than_the_most_wait_for_their_turn(running, container, monkeypatch) -> None:
    monkeypatch.setattr(hand_over, "_CONNECT_SECONDS", 0.02)
    monkeypatch.setattr(hand_over, "_MAX_PENDING", 2)
    clients = [asyncio.create_task(receive_socket(running.path)) for _ in range(20)]
    answers = await asyncio.gather(*clients, return_exceptions=True)
    assert len(answers) == 20
    for each in answers:
        if isinstance(each, socket.socket):
            each.close()
        else:
            assert isinstance(each, TimeoutError)


async def test_a_client_that_goes_harms_nobody(running, container) -> None:
    container.listen(100)
    for _ in range(50):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(running.path)
    with await receive_socket(running.path):
        assert running.thread.is_alive()


async def test_no_descriptor_to_be_had_is_said_and_passes(running, container, monkeypatch) -> None:
    """Clients are told once, and the next ones served; the loop does not turn without rest."""
    refusals = [OSError(errno.EMFILE, "Too many open files")]

    def make(*arguments: int, **named: int) -> _socket.socket:
        if arguments and refusals:
            raise refusals.pop()
        return _socket.socket(*arguments, **named)

    monkeypatch.setattr(hand_over, "_socket", SimpleNamespace(**vars(_socket) | {"socket": make}))
    with pytest.raises(OSError, match="Too many open files"):
        await receive_socket(running.path)
    (await receive_socket(running.path)).close()


async def test_it_ends_with_the_container(running) -> None:
    os.close(running.end_target)
    await asyncio.to_thread(running.thread.join, 60)
    assert not running.thread.is_alive()
    running.end_target = os.open("/dev/null", os.O_RDONLY)
