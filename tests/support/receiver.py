"""A subscriber by HTTP, in a thread of the test: notes what it is posted, answers as it is told."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.plain_http import ask
from support.server import eventually

__all__ = ["Post", "Receiver"]

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Post:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def kind(self) -> str:
        return self.headers.get("x-amz-sns-message-type", "")


@dataclass
class Receiver:
    """Listens until it is closed; `answers` has what paths are answered, else it is 200."""

    posts: list[Post] = field(default_factory=list)
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    """For each path the answers one after another; the last one goes on."""

    def __post_init__(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.posts.append(Post(self.path, headers, body, time.monotonic()))
                receiver._next_answer(self.path)(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def _next_answer(self, path: str) -> Answer:
        waiting = self.answers.get(path)
        if not waiting:
            return status(200)
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    def at(self, path: str, kind: str = "") -> list[Post]:
        """What was posted to `path`, of one kind or all."""
        found = [post for post in list(self.posts) if post.path == path]
        return [post for post in found if not kind or post.kind == kind]

    def wait_for(
        self, path: str, kind: str = "", count: int = 1, seconds: float = 120
    ) -> list[Post]:
        """The same, once there are `count`."""
        eventually(lambda: len(self.at(path, kind)) >= count, seconds)
        return self.at(path, kind)

    def confirm(self, path: str) -> str:
        """Follow the link of the last SubscriptionConfirmation; the answer."""
        last = self.wait_for(path, "SubscriptionConfirmation")[-1]
        return ask(last.json["SubscribeURL"]).body.decode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def status(code: int, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def hang(handler: BaseHTTPRequestHandler) -> None:
    """Say nothing until the other side has had enough."""
    handler.connection.settimeout(60)
    with contextlib.suppress(OSError):
        handler.connection.recv(1)
    handler.close_connection = True


def endless(handler: BaseHTTPRequestHandler) -> None:
    """A good status, and a body that does not end."""
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b"x" * 65536)
    handler.close_connection = True


def nonsense(handler: BaseHTTPRequestHandler) -> None:
    """What is no HTTP."""
    handler.wfile.write(b"220 mail.example.org ESMTP\r\n")
    handler.close_connection = True


def slam(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection without an answer."""
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True
