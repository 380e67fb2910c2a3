"""What hostile code in a container of Docker finds of the machine, and of other containers."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sagehen.base.home import Home
from support.docker import hostile
from support.docker.endpoints import ImageEndpoints, containers_of
from support.docker.engine import running_engine
from support.docker.images import derive_image, import_image
from support.own_network import own_network
from support.server import Server

METADATA = "169.254.169.254"
"""of clouds; here an address of the tests' own network"""
KERNEL_SETTINGS = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sysrq-trigger",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/fs/cgroup/cgroup.procs",
    "/sys/fs/cgroup/memory/cgroup.procs",
)
REACHED = ["an address of the machine", "the metadata service", "itself"]


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    """One in which the engine may set up a firewall, with an address of a cloud's metadata."""
    if os.geteuid() != 0:
        pytest.skip("this is not root")
    with own_network():
        subprocess.run(["ip", "address", "add", f"{METADATA}/32", "dev", "lo"], check=True)
        yield


@pytest.fixture(scope="module")
def engine(network: None) -> Iterator[Any]:
    with running_engine(firewall=True) as client:
        import_image(client, "plain:1")
        derive_image(client, "user:1", "plain:1", "USER 1234:1234")
        yield client


@pytest.fixture(scope="module")
def server(engine: Any, make_server: Callable[..., Server]) -> Server:
    return make_server(launcher="docker", docker_host=engine.host)


@pytest.fixture(scope="module")
def neighbour(engine: Any, images: ImageEndpoints) -> str:
    """The address of another endpoint's container."""
    described = images.create("neighbour", images.container("plain:1"))
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    (container,) = containers_of(engine, "neighbour")
    (network,) = container.attrs["NetworkSettings"]["Networks"].values()
    return str(network["IPAddress"])


@contextmanager
def listening(address: str) -> Iterator[int]:
    """A server of the machine, which takes connections."""
    with socket.create_server((address, 0), backlog=100) as server:
        over = threading.Event()
        server.settimeout(0.1)

        def accept() -> None:
            while not over.is_set():
                try:
                    server.accept()[0].close()
                except TimeoutError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            thread.join()


def find(
    server: Server, engine: Any, images: ImageEndpoints, neighbour: str, name: str, **options: Any
) -> dict[str, Any]:
    """What the code finds in a new endpoint's container."""
    image = options.pop("image")
    described = images.create(name, images.scripted(image, Path(hostile.__file__)), **options)
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    home = Home(server.home)
    machine = engine.networks.list(filters={"label": "sagehen.home"})[0]
    gateway = machine.attrs["IPAM"]["Config"][0]["Gateway"]
    with ExitStack() as stack:
        ports = {
            address: stack.enter_context(listening(address))
            for address in ("127.0.0.1", gateway, METADATA)
        }
        wish = {
            "files": [str(path) for path in secrets_of(home)],
            "sockets": [
                str(home.control_socket),
                str(home.agent_socket),
                engine.host.removeprefix("unix://"),
            ],
            "addresses": {
                "this server": ("127.0.0.1", urlsplit(server.url).port),
                "this server by the machine's address": (gateway, urlsplit(server.url).port),
                "the machine's loopback device": ("127.0.0.1", ports["127.0.0.1"]),
                "an address of the machine": (gateway, ports[gateway]),
                "the metadata service": (METADATA, ports[METADATA]),
                "another container": (neighbour, 8080),
                "itself": ("127.0.0.1", 8080),
            },
            "pids": list(server.pids().values()),
            "kernel": [path for path in KERNEL_SETTINGS if os.path.exists(path)],
            "folders": [str(home.path), os.path.expanduser("~"), "/opt/ml"],
        }
        found: dict[str, Any] = json.loads(images.invoke(name, json.dumps(wish).encode()))
    images.delete(name)
    return found


def secrets_of(home: Home) -> list[Path]:
    models = [path for path in home.artifacts.rglob("*") if path.is_file()]
    assert models
    return [home.credentials, home.token, home.path / "state.db", home.docker_id, *models]


def finds_nothing_of_others(found: dict[str, Any], server: Server) -> None:
    assert found["read"] == found["written"] == []
    assert found["connected"] == found["sockets"] == []
    assert found["signalled"] == []
    assert found["pids"] == [1]
    assert found["kernel"] == found["disks"] == found["mounted"] == []
    home, users_folder, ml = found["listed"].values()
    assert home == users_folder == []
    assert sorted(ml) == ["code", "model"]
    secret = json.loads(Home(server.home).credentials.read_text())["secret_key"]
    assert not [text for text in found["environments"] if secret in text or "SAGEHEN" in text]


@pytest.mark.parametrize(("image", "user"), [("plain:1", 0), ("user:1", 1234)])
def test_hostile_code_finds_nothing_of_others(
    server: Server, engine: Any, images: ImageEndpoints, neighbour: str, image: str, user: int
) -> None:
    found = find(server, engine, images, neighbour, f"hostile-{user}", image=image)
    assert found["user"] == user
    finds_nothing_of_others(found, server)
    assert found["programs"] == (user == 0), "of its own image"
    assert found["reached"] == REACHED


def test_isolated_it_reaches_itself_only(
    server: Server, engine: Any, images: ImageEndpoints, neighbour: str
) -> None:
    found = find(server, engine, images, neighbour, "alone", image="plain:1", isolated=True)
    finds_nothing_of_others(found, server)
    assert found["reached"] == ["itself"]


def test_a_neighbours_model_is_as_it_was(images: ImageEndpoints, neighbour: str) -> None:
    assert images.invoke("neighbour", b"4") == "8.0"
