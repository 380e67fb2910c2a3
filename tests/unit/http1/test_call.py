import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from sagehen.base.errors import Unavailable
from sagehen.http1 import call
from sagehen.http1.call import call_once
from sagehen.http1.pool import Pool

Serve = Callable[[bytes | None], Awaitable[str]]


@pytest.fixture
async def serve(short_path: Path) -> AsyncIterator[Serve]:
    """Starts a server that answers any request with the bytes given, then closes.

    One that is given None says nothing until its client goes.
    """
    servers, handlers = [], []

    async def start(answer: bytes | None) -> str:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            handlers.append(asyncio.current_task())
            # A client that is out of patience may go before it has said anything.
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                if answer is None:
                    await reader.read()
                else:
                    writer.write(answer)
                writer.close()
                await writer.wait_closed()
            writer.close()

        path = short_path / f"{len(servers)}.sock"
        servers.append(await asyncio.start_unix_server(handle, path))
        return f"unix:{path}"

    yield start
    for server in servers:
        server.close()
    await asyncio.gather(*handlers)


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", 404, b""),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, b"ok"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nuntil the end", 200, b"until the end"),
        (b"HTTP/1.1 200 OK\r\n\r\n", 200, b""),
    ],
)
async def test_answers_of_every_form_are_read(
    serve: Serve, answer: bytes, status: int, body: bytes
) -> None:
    got = await call_once(await serve(answer), "GET", "/ping", timeout_seconds=60)
    assert (got.status, got.body) == (status, body)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-ty",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort",
        b"HTTP/1.0 200 OK\r\ncontent-length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nshort",
    ],
)
async def test_what_is_no_answer_is_unavailable(serve: Serve, answer: bytes) -> None:
    with pytest.raises(Unavailable):
        await call_once(await serve(answer), "GET", "/ping", timeout_seconds=60)


async def test_an_endless_answer_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "MAX_ANSWER_BYTES", 100)
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n" + bytes(1000)
    with pytest.raises(Unavailable, match="more than 100 bytes"):
        await call_once(await serve(answer), "GET", "/ping", timeout_seconds=60)


async def test_silence_ends_with_the_time_out(serve: Serve) -> None:
    with pytest.raises(Unavailable, match="did not answer within"):
        await call_once(await serve(None), "GET", "/", timeout_seconds=0.01)


@pytest.mark.parametrize("address", ["unix:/nonexistent", "tcp:127.0.0.1:1"])
async def test_nobody_there_is_unavailable(address: str) -> None:
    with pytest.raises(Unavailable):
        await call_once(address, "GET", "/", timeout_seconds=60)


async def test_calls_share_the_connections_of_a_pool(house, echo) -> None:
    fake = await house.fake(echo)
    pool = Pool(fake.address, house.clock)
    for body in (b"one", b"two"):
        answer = await call.call(pool, "POST", "/a", body, 60)
        assert (answer.status, answer.body) == (200, body)
        assert answer.headers["content-type"] == "text/csv"
    assert fake.connections == 1
    pool.abort()


async def test_a_call_without_an_answer_in_time_gives_its_connection_up(house, eventually) -> None:
    never = asyncio.Event()

    async def wait(asked):
        await never.wait()

    fake = await house.fake(wait)
    pool = Pool(fake.address, house.clock)
    with pytest.raises(Unavailable, match="POST /a was not answered in time"):
        await call.call(pool, "POST", "/a", b"", 0.01)
    await eventually(lambda: not pool._open)
    pool.abort()
