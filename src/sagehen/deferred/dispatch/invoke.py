"""Sends a request to a container, and takes its answer."""

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from sagehen.deferred.dispatch.failures import not_sendable, timed_out, unreadable_answer
from sagehen.deferred.dispatch.inputs import Input
from sagehen.deferred.dispatch.spool import Spool
from sagehen.domain.asynchronous import AsyncRequest
from sagehen.errors import SagehenError

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Answer", "Containers", "InputBroken", "InstanceLost", "NotStarted"]

LONGEST_FIELD_BYTES = 64 * 1024
NOT_STARTED = "x-sagehen-not-started"
"""With 503: the container did not begin, and will not."""


class NotStarted(SagehenError):
    """The container did not begin: another may be asked."""


class InstanceLost(SagehenError):
    """The connection ended before the answer had; the container may have worked on it or not."""


class InputBroken(SagehenError):
    """The input could not be read to its end."""


class Answer(NamedTuple):
    status: int
    content_type: str | None
    spool: Spool

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Containers:
    """The HTTP client of all containers.

    A connection serves one request: with one that is used again, a container that closed it for
    being idle could not be told from an instance that was lost.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def invoke(
        self, address: str, request: AsyncRequest, body: Input, make_spool: Callable[[], Spool]
    ) -> Answer:
        """POST the input to the container at `address` (`unix:/path` or `tcp:host:port`).

        Raises:
            Failure: it took too long, or gave an answer that cannot be kept.
            NotStarted, InstanceLost, InputBroken
        """
        import aiohttp  # a fifth of control's start, and not every server has such requests

        spool = make_spool()
        try:
            async with asyncio.timeout(request.timeout_seconds):
                return await self._ask(address, request, body, spool)
        except BaseException as error:
            spool.discard()
            if isinstance(error, TimeoutError):
                raise timed_out(request.timeout_seconds) from error
            if body.broken is not None and isinstance(error, aiohttp.ClientError):
                raise InputBroken(str(body.broken)) from body.broken
            if isinstance(error, aiohttp.ClientConnectorError):
                raise NotStarted(str(error)) from error
            if isinstance(error, aiohttp.ClientResponseError):
                raise unreadable_answer(error.message) from error
            if isinstance(error, aiohttp.ClientError | ConnectionError):
                raise InstanceLost(str(error) or type(error).__name__) from error
            if isinstance(error, ValueError):
                raise not_sendable(str(error)) from error
            raise

    async def _ask(self, address: str, request: AsyncRequest, body: Input, spool: Spool) -> Answer:
        url, session = self._reach(address)
        # In one piece it takes no task of its own.
        data = (body.whole or body.chunks()) if body.size else None
        async with session.post(
            url, data=data, headers=_headers(request, body), allow_redirects=False
        ) as response:
            if response.status == 503 and NOT_STARTED in response.headers:
                raise NotStarted("The container takes no requests now.")
            async for piece in response.content.iter_any():
                await spool.write(piece)
            await spool.end()
            return Answer(response.status, response.headers.get("Content-Type"), spool)

    def _reach(self, address: str) -> tuple[str, "aiohttp.ClientSession"]:
        kind, _, where = address.partition(":")
        url = "http://localhost/invocations" if kind == "unix" else f"http://{where}/invocations"
        session = self._sessions.get(address)
        if session is None:
            session = self._sessions[address] = _open(kind, where)
        return url, session

    async def keep(self, addresses: Collection[str]) -> None:
        """Close what leads elsewhere."""
        for address in [one for one in self._sessions if one not in addresses]:
            await self._sessions.pop(address).close()

    async def close(self) -> None:
        await self.keep(())


def _open(kind: str, where: str) -> "aiohttp.ClientSession":
    import aiohttp

    connector = (
        aiohttp.UnixConnector(path=where, force_close=True, limit=0)
        if kind == "unix"
        else aiohttp.TCPConnector(force_close=True, limit=0)
    )
    return aiohttp.ClientSession(
        connector=connector,
        # A Unix socket is there at once or not at all.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None if kind == "unix" else 10),
        cookie_jar=aiohttp.DummyCookieJar(),
        # The object is what the container sent, byte for byte.
        auto_decompress=False,
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
        max_line_size=LONGEST_FIELD_BYTES,
        max_field_size=LONGEST_FIELD_BYTES,
    )


def _headers(request: AsyncRequest, body: Input) -> dict[str, str]:
    """The container's. Who names no ContentType gets that of the object, on which AWS's own SDK
    relies: it uploads with one and invokes without."""
    given = {
        "Content-Type": request.content_type or body.content_type,
        "Accept": request.accept,
        "X-Amzn-SageMaker-Custom-Attributes": request.custom_attributes,
        "X-Amzn-SageMaker-Inference-Id": request.inference_id,
        "Content-Length": str(body.size),
    }
    return {name: value for name, value in given.items() if value is not None}
