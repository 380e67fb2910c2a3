"""TensorFlow Serving's REST interface on a port of its own, for scripts that ask it themselves.

A script's `handler` posts to `context.rest_uri`; the same models answer as in the process itself.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

from sagehen.modelserver.contract import Answer

__all__ = ["RestModel", "RestServer", "resource"]

POLL_SECONDS = 1.0
"""How soon the server notices that it is to end."""

_RESOURCE = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?(?::([a-z]+))?")


class RestModel(Protocol):
    """What is asked."""

    def ask(self, body: bytes, name: str, version: str, method: str) -> Answer:
        """The answer to a body in TensorFlow Serving's JSON; refuses in its form."""

    def versions(self, name: str, version: str) -> list[int]:
        """The loaded versions of a model, or the one that is asked for; none if it is unknown."""


def resource(name: str, version: str, method: str) -> str:
    """The path of a model's method; the latest version's where `version` is empty."""
    return f"/v1/models/{name}{f'/versions/{version}' if version else ''}:{method}"


class RestServer:
    """Answers on the loopback interface until it is closed."""

    def __init__(self, model: RestModel) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(model))
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        serve = threading.Thread(
            target=self._server.serve_forever, args=(POLL_SECONDS,), daemon=True, name="rest"
        )
        serve.start()

    def close(self) -> None:
        """Soon, in a thread of its own: ending waits for what is being looked at."""
        threading.Thread(target=self._end, daemon=True).start()

    def _end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(model: RestModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            asked = _RESOURCE.fullmatch(self.path)
            if asked is None or not asked[3]:
                self._answer(400, _error(f"Malformed request: POST {self.path}"))
                return
            answer = model.ask(body, asked[1], asked[2] or "", asked[3])
            self._answer(answer.status, answer.body)

        def do_GET(self) -> None:
            asked = _RESOURCE.fullmatch(self.path)
            versions = model.versions(asked[1], asked[2] or "") if asked else []
            if not versions:
                self._answer(404, _error(f"Could not find any versions of model {self.path}"))
                return
            fine = {"error_code": "OK", "error_message": ""}
            states = [{"version": str(n), "state": "AVAILABLE", "status": fine} for n in versions]
            self._answer(200, json.dumps({"model_version_status": states}).encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def _error(message: str) -> bytes:
    return json.dumps({"error": message}).encode()
