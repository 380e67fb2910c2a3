"""A real server with the S3 of a home of its own, for real clients."""

import asyncio
import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import uvicorn
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from starlette.routing import Router

from sagehen.api.app import Application
from sagehen.api.arrivals import Arrivals
from sagehen.api.call import Call
from sagehen.api.own_site import OwnSite
from sagehen.api.request_body import BodyBudget
from sagehen.clock import SYSTEM
from sagehen.domain.names import ArnMaker
from sagehen.home import prepare_home
from sagehen.objects import LocalObjectStore
from sagehen.settings import Settings
from sagehen.store.database import Database
from sagehen.store.grouped import GroupedWrites
from sagehen.store.migrate import upgrade
from sagehen.wire.sigv4 import Verifier

ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
REGION = "us-east-1"


class S3Server:
    """S3 over HTTP on a free port, in a thread."""

    def __init__(self, path: Path, region: str = REGION) -> None:
        self.settings = Settings(home=path, region=region)
        self.home = prepare_home(path)
        upgrade(self.settings.state_url)
        self.database = Database(self.settings.state_url)
        self.store = LocalObjectStore(self.database, self.home.objects, SYSTEM)
        verifier = Verifier({ACCESS_KEY: SECRET_KEY}, SYSTEM, region)
        app = Application(
            {},
            verifier,
            self._call,
            Router(),
            asynchronous=Router(),
            inference=_nobody,
            site=OwnSite(),
            bodies=BodyBudget(2**28),
        )
        config = uvicorn.Config(app, port=0, log_config=None, lifespan="off", loop="asyncio")
        self._server = uvicorn.Server(config)
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _call(self, request_id: str) -> Call:
        return Call(
            settings=self.settings,
            database=self.database,
            writes=GroupedWrites(self.database),
            objects=self.store,
            clock=SYSTEM,
            arns=ArnMaker(self.settings.account_id, self.settings.region),
            request_id=request_id,
            hint=lambda: None,
            seal=lambda envelope: envelope.message,
            arrivals=Arrivals(10),
        )

    def _run(self) -> None:
        async def main() -> None:
            config = self._server.config
            config.load()
            self._server.lifespan = config.lifespan_class(config)
            await self._server.startup()
            self._started.set()
            await self._server.main_loop()
            await self._server.shutdown()

        asyncio.run(main())

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self.database.close()

    @property
    def port(self) -> int:
        return int(self._server.servers[0].sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def credentials(self) -> Credentials:
        return Credentials(ACCESS_KEY, SECRET_KEY)

    def client(self, **config: Any) -> Any:
        """A boto3 client that repeats nothing."""
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=self.settings.region,
            aws_access_key_id=config.pop("access_key", ACCESS_KEY),
            aws_secret_access_key=SECRET_KEY,
            config=Config(**{"retries": {"total_max_attempts": 1}, **config}),
        )

    def files(self) -> int:
        """How many files the store has on disk."""
        return sum(path.is_file() for path in self.home.objects.rglob("*"))


@pytest.fixture(scope="session")
def make_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., S3Server]]:
    """`make_s3(region=…)` starts a server; each ends with the tests."""
    servers: list[S3Server] = []

    def make(**more: str) -> S3Server:
        server = S3Server(tmp_path_factory.mktemp("s3"), **more)
        server.start()
        servers.append(server)
        return server

    yield make
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def server(make_s3: Callable[..., S3Server]) -> S3Server:
    return make_s3()


@pytest.fixture(scope="session")
def s3(server: S3Server) -> Any:
    return server.client()


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> str:
    """A new bucket for each test."""
    name = "b-" + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:20]
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture
def refused() -> Callable[..., Any]:
    """`refused(call, **arguments)` gives the code and status of the error that must come."""

    def run(call: Callable[..., Any], **arguments: Any) -> tuple[str, int]:
        with pytest.raises(ClientError) as caught:
            call(**arguments)
        answer = caught.value.response
        return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]

    return run


async def _nobody(*_: object) -> bool:
    """No inference service is there."""
    return False
