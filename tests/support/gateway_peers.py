"""What a gateway talks to, by hand: clients, and servers that answer by a function."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

__all__ = ["Answer", "Answering", "Asked", "Client", "FakeServer", "Got"]


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
