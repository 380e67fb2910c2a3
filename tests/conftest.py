"""What every kind of test shares: homes with short paths, and real servers."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.deploy import Deployer
from support.server import Server, eventually


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """`wait_until(condition, timeout_seconds)`."""
    return eventually


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path is short enough for Unix sockets below it."""
    path = Path(tempfile.mkdtemp(prefix="sgh-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def make_server() -> Iterator[Callable[..., Server]]:
    """`make_server(**settings)` starts a real server; each is stopped at the end."""
    made: list[Server] = []

    def make(**settings: str) -> Server:
        folder = Path(tempfile.mkdtemp(prefix="sgh-"))
        chosen = {f"SAGEHEN_{name.upper()}": value for name, value in settings.items()}
        server = Server(folder / "home", chosen)
        made.append(server)
        server.start()
        return server

    yield make
    for server in made:
        server.stop()
        shutil.rmtree(server.home.parent, ignore_errors=True)


@pytest.fixture(scope="session")
def server(make_server: Callable[..., Server]) -> Server:
    """The one server that tests share that do it no harm."""
    return make_server()


@pytest.fixture(scope="session")
def aws(server: Server) -> Server:
    """The same server, for tests that only need `aws.client(name)`."""
    return server


@pytest.fixture(scope="session")
def deploy(server: Server) -> Deployer:
    """A deployer on the shared server."""
    return Deployer(server)


@pytest.fixture(scope="session")
def make_deployer() -> Callable[[Server], Deployer]:
    """`make_deployer(server)`."""
    return Deployer
