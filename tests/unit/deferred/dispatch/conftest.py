"""A dispatcher over a real state and a real object store; its containers are small web servers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from sagehen.deferred.dispatch import endings
from sagehen.deferred.dispatch.assembly import make_dispatcher
from sagehen.domain.asynchronous import AsyncRequest, Output, QueuedRequest
from sagehen.domain.notices import Notice
from sagehen.domain.objects import Attributes, ObjectInfo
from sagehen.domain.records import EndpointRecord, EndpointStatus
from sagehen.domain.routes import AsyncPlan, InstanceRoute, Route, RouteTable, VariantRoute
from sagehen.home import Home, prepare_home
from sagehen.objects import LocalObjectStore
from sagehen.objects.faults import NoSuchKey
from sagehen.settings import Settings
from sagehen.store import async_requests, endpoints
from sagehen.store.database import Database
from sagehen.store.grouped import GroupedWrites
from support.clock import HandClock
from support.state import settings_of

Answerer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Container:
    """One instance's container: what it answers can be changed; what it got is kept."""

    def __init__(self, name: str, socket: Path) -> None:
        self.name = name
        self.socket = socket
        self.answer: Answerer = self.double
        self.got: list[tuple[Mapping[str, str], bytes]] = []
        self.route = InstanceRoute(instance_id=name, address=f"unix:{socket}", run_id="1")
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/invocations", self._invoked)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self.socket)).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _invoked(self, request: web.Request) -> web.StreamResponse:
        self.got.append((dict(request.headers), await request.read()))
        return await self.answer(request)

    async def double(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=2 * await request.read(), content_type="text/csv")

    async def hang_up(self, request: web.Request) -> web.StreamResponse:
        """The connection ends as when the instance is killed."""
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


class Bench:
    """A queue with what works on it, and what a test asks of it."""

    def __init__(self, database: Database, home: Home, settings: Settings) -> None:
        self.database = database
        self.home = home
        self.settings = settings
        self.clock = HandClock(1000.0)
        self.writes = GroupedWrites(database)
        self.objects = LocalObjectStore(database, home.objects, self.clock, self.writes)
        self.metrics: list[tuple[str, Mapping[str, str], float]] = []
        self.notices: list[Notice] = []
        self.containers: dict[str, Container] = {}
        self.routes: dict[str, Route] = {}
        self.dispatcher = self.new_dispatcher()
        self._numbers = iter(range(10_000))
        for bucket in ("ins", "outs"):
            self.objects.create_bucket(bucket)

    def new_dispatcher(self, holder: str = "here") -> Any:
        """As a control that starts anew would have, of this home or another."""
        return make_dispatcher(
            self.settings,
            self.home,
            self.database,
            self.writes,
            self.objects,
            lambda *told: self.metrics.append(told),
            self.clock,
            holder,
        )

    async def container(self, name: str = "i-1") -> Container:
        made = Container(name, self.home.path / f"{name}.sock")
        await made.start()
        self.containers[name] = made
        return made

    def serve(self, endpoint: str = "End", slots: int = 2, **variants: list[str]) -> None:
        """Route an endpoint to containers by their names, variant by variant."""
        chosen = variants or {"v": list(self.containers)}
        self.routes[endpoint] = Route(
            endpoint_name=endpoint,
            asynchronous=AsyncPlan(output_path="s3://outs", max_concurrency=slots),
            variants=tuple(
                VariantRoute(
                    name=name,
                    weight=1,
                    instances=tuple(self.containers[one].route for one in names),
                )
                for name, names in chosen.items()
            ),
        )
        self.write_routes()
        record = EndpointRecord(
            name=endpoint, arn="a", created_at=1, modified_at=1, status=EndpointStatus.IN_SERVICE
        )
        with self.database.write() as connection:
            if not endpoints.update(connection, record):
                endpoints.insert(connection, record)

    def delete(self, endpoint: str = "End") -> None:
        del self.routes[endpoint]
        self.write_routes()
        with self.database.write() as connection:
            endpoints.delete(connection, endpoint)

    def write_routes(self) -> None:
        beside = self.home.routes.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(RouteTable(routes=self.routes)))
        beside.replace(self.home.routes)

    def put(self, key: str, data: bytes, bucket: str = "ins", **headers: str) -> str:
        """An object with those headers, `content_type` and the like."""
        draft = self.objects.draft()
        draft.write(data)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.objects.put(bucket, key, draft, Attributes(headers=given))
        return f"s3://{bucket}/{key}"

    def enqueue(self, body: bytes | None = None, **fields: Any) -> int:
        number = next(self._numbers)
        name = f"{number:04}"
        defaults: dict[str, Any] = {
            "request_id": f"00000000-0000-4000-8000-00000000{name}",
            "inference_id": f"id {name}",
            "endpoint_name": "End",
            "received_at": self.clock.now(),
            "expires_at": self.clock.now() + 600,
            "timeout_seconds": 60.0,
            "content_type": "text/csv",
            "output": Output(
                location=f"s3://outs/{name}.out",
                failure_location=f"s3://outs/{name}-error.out",
                success_topic="arn:ok",
                error_topic="arn:bad",
            ),
        }
        with self.database.write() as connection:
            (sequence,) = async_requests.enqueue(
                connection, [(AsyncRequest(**defaults | fields), body)]
            )
        return sequence

    def get(self, sequence: int) -> QueuedRequest:
        with self.database.read() as connection:
            found = async_requests.get(connection, sequence)
        assert found is not None
        return found

    async def work(self) -> None:
        """Turn until nothing is worked on and there is nothing to take on."""
        while True:
            await self.dispatcher.turn()
            tasks = list(self.dispatcher._tasks.values())
            if not tasks:
                return
            await asyncio.wait(tasks)

    async def work_once(self) -> None:
        """One turn, and what came of it."""
        await self.dispatcher.turn()
        await asyncio.wait(list(self.dispatcher._tasks.values()))

    async def restart(self) -> None:
        """Control was killed and is there again."""
        await self.dispatcher._work.asker.containers.close()
        self.dispatcher = self.new_dispatcher()

    async def begun(self, container: Container, count: int = 1) -> None:
        """Turn once, until the container has got so many requests."""
        await self.dispatcher.turn()
        async with asyncio.timeout(60):
            while len(container.got) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    def object(self, name: str) -> tuple[bytes, ObjectInfo] | None:
        """An output's bytes; None where there is none."""
        try:
            with self.objects.open("outs", name) as found:
                return b"".join(found.chunks()), found.info
        except NoSuchKey:
            return None

    def outputs(self) -> list[str]:
        with self.database.read() as connection:
            rows = connection.exec_driver_sql("SELECT key FROM objects WHERE bucket = 'outs'")
            return sorted(bytes(row[0]).decode() for row in rows)

    def counted(self, name: str) -> list[float]:
        return [value for told, _, value in self.metrics if told == name]


@pytest.fixture
async def bench(
    database: Database, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    home = prepare_home(short_path / "h")
    made = Bench(database, home, settings_of(home.path, max_async_response_bytes=10**6))

    def publish(_: object, notice: Notice) -> bool:
        if notice.topic_arn == "arn:broken":
            raise KeyError("broken")
        made.notices.append(notice)
        return notice.topic_arn != "arn:gone"

    monkeypatch.setattr(endings, "publish", publish)
    yield made
    await made.dispatcher._stop()
    for container in made.containers.values():
        await container.stop()
    made.writes.close()
