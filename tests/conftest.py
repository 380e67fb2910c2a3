"""What every kind of test shares: homes with short paths, and real servers."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from xdist.remote import Producer

from support import costs
from support.deploy import Deployer
from support.memory_disk import use_memory
from support.schedule import FileScheduling
from support.server import ONE_THREAD, Server, eventually, server_maker, set_gates_folder
from support.service_models import read_once
from support.timeouts import TimeoutThread

os.environ.update(ONE_THREAD)  # before any framework is imported
# Tests start hundreds of processes: each would compile all that it imports anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell's background job; then what the tests start would ignore Ctrl-C too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
read_once()
use_memory()
FRAMEWORKS = {
    "lightgbm",
    "onnx",
    "onnxruntime",
    "pandas",
    "sagemaker",
    "scipy",
    "sklearn",
    "tensorflow",
    "torch",
    "transformers",
    "xgboost",
}
LONG = Path(__file__).with_name("wire")
"""A file of half a minute, which one worker would run by itself when the others have ended."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collects tests with the garbage collector off: nearly all that collection makes stays to the
    end, so the collector need not look at it during the tests either."""
    before = sys.modules.keys() & FRAMEWORKS
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
        if imported := (sys.modules.keys() & FRAMEWORKS) - before:
            raise pytest.UsageError(
                f"The collection of tests imported {', '.join(sorted(imported))}, in each worker. "
                "Import frameworks inside a test or fixture, or from support.frameworks."
            )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(costs.OPTION, metavar="FILE", help="Write what the tests cost to FILE.")


def pytest_configure(config: pytest.Config) -> None:
    costs.register(config)
    config.pluginmanager.register(TimeoutThread())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.path.is_relative_to(LONG))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling | None:
    return FileScheduling(config, log) if config.option.dist == "loadfile" else None


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


@pytest.fixture(scope="session", autouse=True)
def shared_with_containers(tmp_path_factory: pytest.TempPathFactory) -> None:
    set_gates_folder(tmp_path_factory.getbasetemp())


@pytest.fixture
def gates(tmp_path: Path) -> Path:
    """A folder that the test shares with containers."""
    return tmp_path


@pytest.fixture(scope="module")
def module_gates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gates")


@pytest.fixture(scope="module")
def make_server() -> Iterator[Callable[..., Server]]:
    """`make_server(**settings)` starts a real server; each is stopped after the file's tests."""
    with server_maker() as make:
        yield make


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    with server_maker() as make:
        yield make(access_log="true")


@pytest.fixture(scope="module")
def server(shared_server: Server) -> Iterator[Server]:
    """The one server that tests share that do it no harm; a file's endpoints go with it."""
    yield shared_server
    delete_endpoints(shared_server)


def delete_endpoints(server: Server) -> None:
    """All that can be: what nobody calls any more would still take its share of the machine."""
    sagemaker = server.client("sagemaker")
    for page in sagemaker.get_paginator("list_endpoints").paginate():
        for endpoint in page["Endpoints"]:
            with suppress(ClientError):
                sagemaker.delete_endpoint(EndpointName=endpoint["EndpointName"])


@pytest.fixture(scope="module")
def aws(server: Server) -> Server:
    """The same server, for tests that only need `aws.client(name)`."""
    return server


@pytest.fixture(scope="module")
def deploy(server: Server) -> Deployer:
    """A deployer on the shared server."""
    return Deployer(server)


@pytest.fixture(scope="session")
def make_deployer() -> Callable[[Server], Deployer]:
    """`make_deployer(server)`."""
    return Deployer
