"""A gateway on a real port, and small real containers behind it, on the loop that it runs on."""

import asyncio
import random
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
import uvloop
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from sagehen.domain.routes import (
    DEFAULT_SLOTS,
    InstanceRoute,
    Route,
    RouteTable,
    VariantRoute,
)
from sagehen.gateway import invocation
from sagehen.gateway.assembly import make_gateway
from sagehen.gateway.board import Board, make_board, open_board
from sagehen.gateway.gateway import Gateway
from sagehen.home import Home, prepare_home
from support.state import settings_of

KEY, SECRET, REGION = "AKSHTEST", "test-secret", "us-east-1"


def pytest_asyncio_loop_factories(config: Any, item: Any) -> dict[str, Any]:
    return {"uvloop": uvloop.new_event_loop}


class TestClock:
    """Waits next to nothing; its time goes on only when a test says so."""

    __test__ = False

    def __init__(self) -> None:
        self.elapsed = 1000.0

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return self.elapsed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0.001)

    def advance(self, seconds: float) -> None:
        self.elapsed += seconds


@dataclass
class Asked:
    """One request as a fake server got it."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def fields(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers}


Answer = tuple[int, dict[str, str], bytes] | bytes | None
Answering = Callable[[Asked], Awaitable[Answer] | Answer]


@dataclass
class FakeServer:
    """A container, an agent or control: answers by a function, and remembers what it was asked."""

    address: str
    answering: Answering
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    lost: int = 0
    """Connections that the other side has ended."""

    stop_listening: Callable[[], None] = lambda: None
    """Connections that there are stay."""

    def hang_up(self) -> None:
        """End every connection."""
        for writer in self.writers:
            writer.transport.abort()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.add(writer)
        try:
            while (asked := await read_request(reader)) is not None:
                self.asked.append(asked)
                answer = self.answering(asked)
                if asyncio.iscoroutine(answer):
                    answer = await unless_gone(answer, reader)
                if answer is None:
                    return  # Says nothing and hangs up.
                writer.write(answer if isinstance(answer, bytes) else as_http(*answer))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.lost += 1
            self.writers.discard(writer)
            writer.close()


def as_http(status: int, headers: dict[str, str], body: bytes) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def unless_gone(answer: Any, reader: asyncio.StreamReader) -> Answer:
    """The awaited answer; None as soon as the other side hangs up."""
    answering, going = asyncio.ensure_future(answer), asyncio.ensure_future(reader.read(1))
    await asyncio.wait((answering, going), return_when=asyncio.FIRST_COMPLETED)
    for task in (answering, going):
        task.cancel()
    done = await asyncio.gather(answering, going, return_exceptions=True)
    return None if isinstance(done[0], BaseException) else done[0]


async def eventually(condition: Callable[[], object]) -> None:
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("It never came to be.")


async def comes_to_rest(count: Callable[[], int]) -> int:
    """What `count()` is when it has grown, and grows no more."""
    before, now = 0, count()
    while before != now or not now:
        before = now
        await asyncio.sleep(0.03)
        now = count()
    return now


async def read_request(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    headers = [tuple(line.split(": ", 1)) for line in lines]
    method, path, _ = first.split(" ")
    asked = Asked(method, path, headers, b"")  # type: ignore[arg-type]
    if "chunked" in asked.fields.get("transfer-encoding", ""):
        while size := int(await reader.readline(), 16):
            asked.body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        asked.body = await reader.readexactly(int(asked.fields.get("content-length", 0)))
    return asked


@dataclass
class Got:
    """One answer as a client got it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Client:
    """One connection; what is written and read is up to the test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, head_only: bool = False) -> Got:
        """The next final answer; interim ones are passed over."""
        status, headers = await self.head()
        while status < 200:
            status, headers = await self.head()
        if head_only or status in (204, 304):
            return Got(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await self.reader.readline(), 16):
                body += await self.reader.readexactly(size)
                await self.reader.readline()
            await self.reader.readline()
            return Got(status, headers, body)
        if "content-length" not in headers:
            return Got(status, headers, await self.reader.read())
        return Got(status, headers, await self.reader.readexactly(int(headers["content-length"])))

    async def head(self) -> tuple[int, dict[str, str]]:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        return int(lines[0].split(" ")[1]), {k.lower(): v for k, v in headers.items()}

    async def ended(self) -> bool:
        """The server closes, and says nothing more before."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()

    def stop_reading(self) -> None:
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]


class House:
    """Everything around one gateway."""

    def __init__(self, home: Home, stack: AsyncExitStack) -> None:
        self.home = home
        self.clock = TestClock()
        self.settings: dict[str, Any] = {}
        self.host = ""
        self.told: Any = None
        """The last report to control, where `control` is there."""
        self.written: list[str] = []
        """Of the access log."""
        self.gateway: Gateway
        self.container: FakeServer
        self._stack = stack
        self._handling: set[asyncio.Task[None] | None] = set()
        self._fakes = 0
        self._running: Any = None

    async def fake(self, answering: Answering, path: Path | None = None) -> FakeServer:
        """A server on a Unix socket of its own, or on `path`."""
        self._fakes += 1
        path = path or self.home.run / f"{self._fakes}.sock"
        fake = FakeServer(f"unix:{path}", answering)
        server = await asyncio.start_unix_server(fake.handle, path)
        fake.stop_listening = server.close
        self._stack.callback(server.close)
        return fake

    async def control(self, answering: Answering) -> FakeServer:
        """Control, but for the counters, which it takes quietly."""

        def answer(asked: Asked) -> Awaitable[Answer] | Answer:
            if asked.path == "/_sagehen/internal/gateway":
                fake.asked.pop()
                self.told = msgspec.json.decode(asked.body)
                return 204, {}, b""
            return answering(asked)

        fake = await self.fake(answer, self.home.control_socket)
        return fake

    async def raw(self, handle: Any, path: Path, backlog: int = 100) -> str:
        """A server that does `await handle(head, reader, writer)` with its first request."""

        async def first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # Held: a task that waits for what nobody else knows may be collected as garbage.
            self._handling.add(asyncio.current_task())
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                if b"/_sagehen/internal/" not in head:
                    await handle(head, reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_unix_server(first, path, backlog=backlog)
        self._stack.callback(server.close)
        return f"unix:{path}"

    async def endless(self, head: bytes, piece: bytes) -> tuple[str, Callable[[], int]]:
        """A container that sends `piece` for ever, and how many it could send."""
        sent = 0

        async def send(asked: Any, reader: Any, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            writer.write(head)
            while True:
                writer.write(piece)
                await writer.drain()
                sent += 1

        return await self.raw(send, self.home.run / "endless.sock"), lambda: sent

    async def agent(self, answering: Answering) -> FakeServer:
        return await self.fake(answering, self.home.agent_socket)

    def route(
        self, *variants: VariantRoute, endpoint: str = "price", shadow: VariantRoute | None = None
    ) -> None:
        """Write a table with one endpoint."""
        self.table(Route(endpoint_name=endpoint, variants=variants, shadow=shadow))

    def table(self, *routes: Route) -> None:
        table = RouteTable(routes={route.endpoint_name: route for route in routes})
        draft = self.home.routes.with_suffix(".new")
        draft.write_bytes(msgspec.json.encode(table))
        draft.replace(self.home.routes)

    async def start(self, **settings: Any) -> "House":
        self.gateway = make_gateway(
            settings_of(self.home.path, **settings),
            self.home,
            {KEY: SECRET},
            self.clock,
            random.Random(7),
            self.board(),
            self.written.append,
        )
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{listener.getsockname()[1]}"
        self._running = self.gateway.running(listener)
        await self._running.__aenter__()
        return self

    def board(self, row: int = 0) -> Board:
        """One of two gateways' view of the board."""
        if not self.home.board.exists():
            make_board(self.home.board, 2)
        return open_board(self.home.board, row)

    async def stop(self) -> None:
        if self._running is not None:
            running, self._running = self._running, None
            advancing = asyncio.create_task(self._age())
            await running.__aexit__(None, None, None)
            advancing.cancel()

    async def _age(self) -> None:
        while True:
            self.clock.advance(0.5)
            await asyncio.sleep(0.001)

    async def connect(self) -> Client:
        host, _, port = self.host.partition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        self._stack.callback(client.close)
        return client

    def signed(
        self,
        body: bytes = b"1,2",
        path: str = "/endpoints/price/invocations",
        secret: str = SECRET,
        service: str = "sagemaker",
        **headers: str,
    ) -> bytes:
        """A signed invocation, as bytes; underscores in header names stand for hyphens."""
        request = AWSRequest("POST", f"http://{self.host}{path}", data=body)
        for name, value in headers.items():
            request.headers[name.replace("_", "-")] = value
        SigV4Auth(Credentials(KEY, secret), service, REGION).add_auth(request)
        lines = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        return (
            f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\n{lines}"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    async def invoke(self, body: bytes = b"1,2", **signed: Any) -> Got:
        """One signed invocation on a connection of its own."""
        client = await self.connect()
        client.send(self.signed(body, **signed))
        got = await client.answer()
        client.close()
        return got

    def outstanding(self) -> int:
        """Of all instances together."""
        return sum(one.outstanding for one in self.gateway._routes.instances())

    async def boto(self, operation: str, **params: Any) -> Any:
        """Call the real client, in a thread."""
        client = boto3.client(
            "sagemaker-runtime",
            endpoint_url=f"http://{self.host}",
            region_name=REGION,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            config=Config(retries={"max_attempts": 0}),
        )

        def run() -> Any:
            answer = getattr(client, operation)(**params)
            if "Body" in answer:
                answer["Body"] = answer["Body"].read()
            return answer

        try:
            return await asyncio.to_thread(run)
        finally:
            client.close()


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """None that would note why a container ended: nobody waits for that."""
    monkeypatch.setattr(invocation, "MOST_QUESTIONS", 0)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """Not started yet: `await house.start(**settings)`."""
    folder = Path(tempfile.mkdtemp(prefix="sgg"))
    async with AsyncExitStack() as stack:
        house = House(prepare_home(folder), stack)
        yield house
        await house.stop()
    shutil.rmtree(folder)


@pytest.fixture
def variant() -> Callable[..., VariantRoute]:
    """`variant(*fakes_or_addresses, name=…, weight=…, slots=…, …)`."""

    def make(
        *places: Any,
        name: str = "AllTraffic",
        weight: float = 1,
        slots: int = DEFAULT_SLOTS,
        **more: Any,
    ) -> Any:
        instances = tuple(
            InstanceRoute(
                instance_id=f"{name}-{number}",
                address=getattr(place, "address", place),
                slots=slots,
            )
            for number, place in enumerate(places)
        )
        return VariantRoute(name=name, weight=weight, instances=instances, **more)

    return make


@pytest.fixture(name="eventually")
def eventually_fixture() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """`await eventually(lambda: condition)`."""
    return eventually


@pytest.fixture(name="comes_to_rest")
def comes_to_rest_fixture() -> Callable[[Callable[[], int]], Awaitable[int]]:
    """`await comes_to_rest(count)`."""
    return comes_to_rest


@pytest.fixture
def limits_met(house: House) -> Callable[[], dict[str, int]]:
    """`limits_met()`: how often, by name; those that were met only."""

    def met() -> dict[str, int]:
        hits = house.gateway._counters.limit_hits
        return {limit.value: times for limit, times in hits.items() if times}

    return met


@pytest.fixture
def echo() -> Answering:
    """Answers with the body that it got."""
    return lambda asked: (200, {"Content-Type": "text/csv"}, asked.body)


@pytest.fixture
async def served(house: House, variant: Callable[..., VariantRoute], echo: Answering) -> House:
    """A started house with one instance, `served.container`, that echoes."""
    house.container = await house.fake(echo)
    house.route(variant(house.container))
    return await house.start()
