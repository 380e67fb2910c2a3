"""Requests of commands to a server, and what its answers become."""

import http.server
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagehen.app.commands.control_client import call_control
from sagehen.base.errors import Conflict, Invalid, NotFound, SagehenError, Unavailable
from sagehen.base.home import Home, locked

Received = list[tuple[str, str, str | None, bytes]]


@pytest.fixture
def received() -> Received:
    return []


@pytest.fixture
def home(tmp_path: Path, received: Received) -> Iterator[Home]:
    """A home whose server answers `/_sagehen/<status>` with that status."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            received.append((self.command, self.path, self.headers.get("Authorization"), body))
            self.send_response(int(self.path.rpartition("/")[2]))
            self.end_headers()
            field = "Message" if self.path.endswith("/503") else "message"
            self.wfile.write(json.dumps({field: "The reason."}).encode())

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        home = Home(tmp_path)
        home.run.mkdir()
        home.address.write_text(f"http://127.0.0.1:{server.server_port}")
        yield home
        server.shutdown()
        thread.join()


def test_an_answer_comes_with_the_address(home: Home, received: Received) -> None:
    home.token.write_text("secret\n")
    answer = call_control(home, "200", "POST", {"a": 1})
    assert answer == {"url": home.address.read_text(), "message": "The reason."}
    assert received == [("POST", "/_sagehen/200", "Bearer secret", b'{"a": 1}')]


def test_older_servers_have_no_token(home: Home, received: Received) -> None:
    call_control(home, "200")
    assert received == [("GET", "/_sagehen/200", None, b"")]


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, Invalid), (403, Invalid), (404, NotFound), (409, Conflict), (503, Unavailable)],
)
def test_errors_keep_their_message(home: Home, status: int, error: type[SagehenError]) -> None:
    with pytest.raises(error, match=r"^The reason\.$"):
        call_control(home, str(status))


def test_other_statuses_mean_that_the_server_does_not_answer(home: Home) -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        call_control(home, "500")


def test_the_address_that_a_killed_server_left_is_no_server(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.run.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        home.address.write_text(address)
        with pytest.raises(Unavailable, match=r"No server runs with the home .* sagehen up"):
            call_control(home, "status")
        with locked(home):
            home.address.write_text(address)
            with pytest.raises(Unavailable, match=r"answer: \[Errno 111\]"):
                call_control(home, "status")


def test_without_a_server_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="sagehen up"):
        call_control(Home(tmp_path), "status")


def test_without_a_server_the_command_that_starts_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=f"Start one: sagehen up --home {tmp_path}$"):
        call_control(Home(tmp_path), "status")


def test_a_server_that_starts_is_not_taken_for_none(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.run.mkdir()
    with pytest.raises(Unavailable, match="No server runs with the home"):
        call_control(home, "status")
    starting = rf"\(process id {os.getpid()}\) is starting"
    with locked(home), pytest.raises(Unavailable, match=starting):
        call_control(home, "status")
    with pytest.raises(Unavailable, match="No server runs with the home"):
        call_control(home, "status")
