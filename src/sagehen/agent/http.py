"""One HTTP exchange with a local server: a container or the agent."""

import asyncio
from dataclasses import dataclass, field

import httptools

from sagehen.base.errors import Unavailable

__all__ = ["LocalAnswer", "exchange"]

MOST_ANSWER_BYTES = 64 * 2**20
READ_BYTES = 64 * 1024


@dataclass
class LocalAnswer:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    """names in lower case"""

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace").strip()


@dataclass
class _Collector:
    """httptools callbacks for one answer."""

    body: bytearray = field(default_factory=bytearray)
    headers: dict[str, str] = field(default_factory=dict)
    headed: bool = False
    framed: bool = False
    """else the body ends with the connection"""
    complete: bool = False

    def on_header(self, name: bytes, value: bytes) -> None:
        title = name.decode("latin-1").lower()
        self.headers[title] = value.decode("latin-1")
        if title in ("content-length", "transfer-encoding"):
            self.framed = True

    def on_headers_complete(self) -> None:
        self.headed = True

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.complete = True


async def exchange(
    address: str, method: str, path: str, body: bytes = b"", *, timeout_seconds: float
) -> LocalAnswer:
    """Uses a new connection.

    Args:
        address: `unix:/path` or `tcp:host:port`.
        body: JSON or empty.

    Raises:
        Unavailable: no listener, no answer in time, or not HTTP.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await _connect(address)
            try:
                writer.write(_head(method, path, body) + body)
                return await _read(reader)
            finally:
                writer.close()
    except TimeoutError as error:
        raise Unavailable(f"{address} did not answer within {timeout_seconds:g} s.") from error
    except (OSError, httptools.HttpParserError) as error:
        raise Unavailable(f"{address} cannot be asked: {error}") from error


async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    kind, _, place = address.partition(":")
    if kind == "unix":
        return await asyncio.open_unix_connection(place)
    host, _, port = place.rpartition(":")
    return await asyncio.open_connection(host, int(port))


def _head(method: str, path: str, body: bytes) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", "connection: close"]
    if body or method in ("POST", "PUT"):
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _read(reader: asyncio.StreamReader) -> LocalAnswer:
    collected = _Collector()
    parser = httptools.HttpResponseParser(collected)
    while not collected.complete:
        data = await reader.read(READ_BYTES)
        if not data:
            return _end_at_close(parser, collected)
        parser.feed_data(data)
        if len(collected.body) > MOST_ANSWER_BYTES:
            raise OSError(f"it answers with more than {MOST_ANSWER_BYTES} bytes")
    return LocalAnswer(parser.get_status_code(), bytes(collected.body), collected.headers)


def _end_at_close(parser: httptools.HttpResponseParser, collected: _Collector) -> LocalAnswer:
    if collected.headed and not collected.framed:
        return LocalAnswer(parser.get_status_code(), bytes(collected.body))
    raise OSError("it closed the connection before its answer was whole")
