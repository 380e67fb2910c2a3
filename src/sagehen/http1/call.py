"""Calls to control, the agent, a container or S3, with whole answers; not for the hot path."""

import asyncio
from dataclasses import dataclass, field

from sagehen.base.clock import SYSTEM
from sagehen.base.errors import Unavailable
from sagehen.http1.client import ClientConnection
from sagehen.http1.fields import Headers, joined_fields
from sagehen.http1.pool import Connector, Pool, open_connection

__all__ = ["LocalAnswer", "call", "call_once", "connection_of_one_call", "exchange"]

MAX_ANSWER_BYTES = 64 * 2**20


@dataclass(frozen=True)
class LocalAnswer:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    """names in lower case"""

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace").strip()


async def call(
    pool: Pool, method: str, path: str, body: bytes, timeout_seconds: float
) -> LocalAnswer:
    """Raises Unavailable if no complete answer comes in time."""
    parts = [_request(method, path, body, "keep-alive")]
    return await exchange(pool, parts, f"{method} {path}", timeout_seconds)


async def exchange(
    pool: Pool,
    parts: list[bytes],
    request_name: str,
    timeout_seconds: float,
    bodiless: bool = False,
) -> LocalAnswer:
    """Sends the request that `parts` are, with its head. `bodiless`: it is a HEAD, whose answer has
    no body. Raises Unavailable if no complete answer comes in time."""
    receiver = _Receiver(parts, bodiless)
    connection = pool.take(receiver)
    if connection is not None:
        receiver.connected(connection)
    try:
        async with asyncio.timeout(timeout_seconds):
            return await receiver.answer
    except TimeoutError as error:
        raise Unavailable(f"{request_name} was not answered in time.") from error
    finally:
        pool.forget(receiver)
        receiver.let_go()
        del receiver  # breaks a cycle of exception, frame and future


async def call_once(
    address: str,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    timeout_seconds: float,
    connector: Connector = open_connection,
) -> LocalAnswer:
    """Uses a new connection.

    Args:
        address: as of `connector`.
        body: JSON or empty.

    Raises:
        Unavailable: no listener, no answer in time, or not HTTP.
    """
    receiver = _Receiver([_request(method, path, body, "close")])
    try:
        async with asyncio.timeout(timeout_seconds):
            receiver.connected(await connector(address, connection_of_one_call, SYSTEM))
            return await receiver.answer
    except TimeoutError as error:
        raise Unavailable(f"{address} did not answer within {timeout_seconds:g} s.") from error
    except OSError as error:
        raise Unavailable(f"{address} cannot be reached: {error}") from error
    except Unavailable as error:
        raise Unavailable(f"{address} cannot be asked: {error}") from error
    finally:
        receiver.let_go()
        del receiver  # breaks a cycle of exception, frame and future


def connection_of_one_call() -> ClientConnection:
    return ClientConnection(lambda connection: connection.transport.close(), lambda _: None)


def _request(method: str, path: str, body: bytes, persistence: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Connection: {persistence}"]
    if body or method in ("POST", "PUT"):
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class _Receiver:
    """Collects the answer to one request."""

    def __init__(self, parts: list[bytes], bodiless: bool = False) -> None:
        self.answer: asyncio.Future[LocalAnswer] = asyncio.get_running_loop().create_future()
        self._parts = parts
        self._bodiless = bodiless
        self._connection: ClientConnection | None = None
        self._status = 0
        self._headers: Headers = []
        self._pieces: list[bytes] = []
        self._size = 0

    def let_go(self) -> None:
        if self._connection is not None:
            self._connection.abandon()

    # Called by the pool

    def connected(self, connection: ClientConnection) -> None:
        self._connection = connection
        connection.begin(self, self._bodiless)
        connection.write_all(self._parts)

    def refused(self) -> None:
        self._fail("Nobody listens.")

    # Called by the connection

    def answer_interim(self, status: int, headers: Headers) -> None: ...

    def answer_begins(self, status: int, headers: Headers, length: int | None) -> None:
        self._status, self._headers = status, headers

    def answer_continues(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > MAX_ANSWER_BYTES:
            self.let_go()
            self._fail(f"The answer has more than {MAX_ANSWER_BYTES} bytes.")

    def answer_ends(self) -> None:
        self._connection = None
        if not self.answer.done():
            body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self.answer.set_result(LocalAnswer(self._status, body, joined_fields(self._headers)))

    def answer_breaks(self) -> None:
        self._fail("The connection was lost before the answer was whole, or it is not HTTP.")

    def upstream_full(self) -> None: ...

    def upstream_drained(self) -> None: ...

    def _fail(self, reason: str) -> None:
        self._connection = None
        if not self.answer.done():
            self.answer.set_exception(Unavailable(reason))
