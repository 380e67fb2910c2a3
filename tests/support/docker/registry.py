"""Image registries: Debian's docker-registry, and one that never answers."""

import base64
import json
import shutil
import socket
import socketserver
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.server import eventually

__all__ = ["Registry", "SilentRegistry", "running_registry", "silent_registry"]

_USER, _PASSWORD = "ada", "secret"
_BCRYPT = "$2y$05$twhE5xctaJUkmhQeRJFO1Odnhzj2PI4xIyetnwbMOGt.m7UlOmRg6"
"""of the password: docker-registry takes no other hash"""


@dataclass
class Registry:
    """Engines speak HTTP to registries at loopback addresses."""

    address: str
    folder: Path
    process: subprocess.Popen[bytes]
    digest: str = ""
    """of the image last pushed"""

    def push(self, client: Any, image: str, name: str) -> None:
        """Stores an image of the engine under a name such as `team/mine:1`."""
        repository, _, tag = name.rpartition(":")
        target = f"{self.address}/{repository}"
        client.api.tag(image, target, tag)
        lines = list(client.api.push(target, tag, stream=True, decode=True))
        assert not [line for line in lines if "error" in line], lines
        client.api.remove_image(f"{target}:{tag}")
        (self.digest,) = (line["aux"]["Digest"] for line in lines if "aux" in line)

    def log_in(self, folder: Path) -> None:
        """Writes what `docker login` would."""
        secret = base64.b64encode(f"{_USER}:{_PASSWORD}".encode()).decode()
        config = {"auths": {self.address: {"auth": secret}}}
        (folder / "config.json").write_text(json.dumps(config))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@contextmanager
def running_registry(behind_login: Registry | None = None) -> Iterator[Registry]:
    """Skips the test where docker-registry is not installed.

    Args:
        behind_login: another registry, whose images this one gives to the user alone.
    """
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("no docker-registry is installed")
    folder = Path(tempfile.mkdtemp(prefix="sgh-rg-"))
    data = (behind_login.folder if behind_login is not None else folder) / "data"
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(data)}},
        "http": {"addr": address},
    }
    if behind_login is not None:
        (folder / "users").write_text(f"{_USER}:{_BCRYPT}\n")
        config["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "users")}}
    (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "serve", folder / "config.yml"], stdout=log, stderr=log
        )
    registry = Registry(address, folder, process)
    try:
        eventually(lambda: _listens(address) or process.poll() is not None)
        assert process.poll() is None, (folder / "log").read_text()
        yield registry
    finally:
        registry.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _listens(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


class SilentRegistry(socketserver.ThreadingTCPServer):
    """Says that it is a registry, and then never answers a question for an image."""

    daemon_threads = True
    request_queue_size = 100

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Silence)
        self.asked: set[str] = set()
        """the repositories"""
        self.over = threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Silence(socketserver.StreamRequestHandler):
    server: SilentRegistry

    def handle(self) -> None:
        while line := self.rfile.readline():
            if not line.startswith((b"GET ", b"HEAD ")):
                # TLS is tried first.
                self.wfile.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
                return
            while self.rfile.readline().strip():
                pass
            path = line.split()[1].decode()
            if path != "/v2/":
                self.server.asked.add(path.removeprefix("/v2/").partition("/manifests/")[0])
                self.server.over.wait()
                return
            self.wfile.write(
                b"HTTP/1.1 200 OK\r\nDocker-Distribution-Api-Version: registry/2.0\r\n"
                b"Content-Length: 2\r\n\r\n{}"
            )


@contextmanager
def silent_registry() -> Iterator[SilentRegistry]:
    with SilentRegistry() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()
