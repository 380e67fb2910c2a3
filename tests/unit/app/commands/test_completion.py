"""What a shell is told to complete, whatever answers at the server's address."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import typer

from sagehen.app.commands import completion
from sagehen.base.home import Home, prepare_home

ENDPOINTS = b'{"endpoints": [{"name": "house-prices"}, {"name": "other"}]}'


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body


@pytest.fixture
def answer(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[bytes], typer.Context]]:
    """Has a server send these bytes to each request, and keep the connection; gives a command's
    context."""
    home: Home = prepare_home(short_path / "home")
    home.credentials.write_text('{"access_key": "AKSHX", "secret_key": "secret"}')
    listener = socket.create_server(("127.0.0.1", 0))
    home.address.write_text(f"http://127.0.0.1:{listener.getsockname()[1]}")
    content: list[bytes] = []
    connections: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connections.append(listener.accept()[0])
            except OSError:
                return
            connections[-1].recv(65536)
            connections[-1].sendall(content[0])

    thread = threading.Thread(target=serve)

    def begin(data: bytes) -> typer.Context:
        content.append(data)
        thread.start()
        context = typer.Context(click.Command("logs"))
        context.params = {"home": home.path}
        return context

    yield begin
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()
    for connection in connections:
        connection.close()


def test_names_are_completed(answer: Callable[[bytes], typer.Context]) -> None:
    assert completion.complete_endpoints(answer(ok(ENDPOINTS)), "ho") == ["house-prices"]


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"no json", b'{"endpoints": null}', b'{"endpoints": [{"name": 7}]}']
)
def test_nothing_is_completed_by_what_no_server_says(
    answer: Callable[[bytes], typer.Context], body: bytes
) -> None:
    assert completion.complete_endpoints(answer(ok(body)), "") == []


def test_a_hung_server_does_not_hang_the_shell(
    answer: Callable[[bytes], typer.Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece may come in time and the whole never end."""
    monkeypatch.setattr(completion, "TIMEOUT_SECONDS", 0.1)
    began = time.monotonic()
    assert completion.complete_training(answer(b""), "") == []
    assert time.monotonic() - began < 20
