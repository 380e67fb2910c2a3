"""Small JSON calls to control or the agent, not for the hot path."""

import asyncio

from sagehen.base.errors import Unavailable
from sagehen.gateway.container.connection import Headers, Upstream
from sagehen.gateway.container.pool import Pool

__all__ = ["call"]

MAX_ANSWER_BYTES = 1024 * 1024


async def call(
    pool: Pool, method: str, path: str, body: bytes, timeout_seconds: float
) -> tuple[int, bytes]:
    """Raises Unavailable if no complete answer comes in time."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    asked = _Call(head.encode() + body)
    upstream = pool.take(asked)
    if upstream is not None:
        asked.connected(upstream)
    try:
        async with asyncio.timeout(timeout_seconds):
            return await asked.answer
    except TimeoutError as error:
        raise Unavailable(f"{method} {path} was not answered in time.") from error
    finally:
        pool.forget(asked)
        asked.let_go()
        del asked  # breaks a cycle of exception, frame and future


class _Call:
    def __init__(self, request: bytes) -> None:
        self.answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._request = request
        self._upstream: Upstream | None = None
        self._status = 0
        self._body = bytearray()

    def let_go(self) -> None:
        if self._upstream is not None:
            self._upstream.abandon()

    def connected(self, upstream: Upstream) -> None:
        self._upstream = upstream
        upstream.begin(self)
        upstream.write(self._request)

    def refused(self) -> None:
        self._fail("Nobody listens.")

    def answer_interim(self, status: int, headers: Headers) -> None: ...

    def answer_begins(self, status: int, headers: Headers, length: int | None) -> None:
        self._status = status

    def answer_continues(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > MAX_ANSWER_BYTES:
            self.let_go()
            self.answer_breaks()

    def answer_ends(self) -> None:
        self._upstream = None
        if not self.answer.done():
            self.answer.set_result((self._status, bytes(self._body)))

    def answer_breaks(self) -> None:
        self._upstream = None
        self._fail("The connection was lost.")

    def upstream_full(self) -> None: ...

    def upstream_drained(self) -> None: ...

    def _fail(self, why: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(Unavailable(why))
