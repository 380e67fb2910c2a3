"""Sends deliveries by HTTP."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from sagehen.services.messaging.outbox.destinations import (
    DeliveryResult,
    HttpRequest,
    ReceiverAnswer,
)

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver

__all__ = ["HttpSender", "threaded_resolver"]

_READ_OF_ANSWER = 64 * 1024
"""bytes read to reuse the connection; a longer body closes it"""
_RESOLVER_THREADS = 16


class HttpSender:
    """Sends to any URL; follows no redirects."""

    def __init__(self, timeout_seconds: float) -> None:
        """`timeout_seconds` bounds a whole attempt."""
        self._timeout_seconds = timeout_seconds
        self._opened: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def send(self, request: HttpRequest) -> ReceiverAnswer:
        import aiohttp  # a fifth of control's start, and not every server has subscribers

        try:
            async with self._session().request(
                request.method,
                request.url,
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
            ) as response:
                result = request.result_of(response.status)
                answer = ReceiverAnswer(result, f"status {response.status}")
                await _read_past(response)
                return answer
        except TimeoutError:
            return ReceiverAnswer(DeliveryResult.FAILED, "no answer in time")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return ReceiverAnswer(DeliveryResult.FAILED, _reason(error))

    def _session(self) -> "aiohttp.ClientSession":
        """Opens the session in the first caller's event loop."""
        if self._opened is None:
            self._opened = _open(self._timeout_seconds)
        return self._opened


def _open(timeout_seconds: float) -> "aiohttp.ClientSession":
    import aiohttp

    return aiohttp.ClientSession(
        # Callers limit concurrency.
        connector=aiohttp.TCPConnector(limit=0, resolver=threaded_resolver()),
        timeout=aiohttp.ClientTimeout(total=timeout_seconds),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


def threaded_resolver() -> "AbstractResolver":
    """Resolves host names in threads of its own, so that a hanging lookup blocks nothing else:
    operations use the event loop's threads."""
    from aiohttp.abc import AbstractResolver, ResolveResult

    threads = ThreadPoolExecutor(_RESOLVER_THREADS, "resolver")

    class ThreadedResolver(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            loop = asyncio.get_running_loop()
            addresses = await loop.run_in_executor(
                threads, lambda: socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
            )
            return [
                ResolveResult(
                    hostname=host,
                    host=str(address[0]),
                    port=int(address[1]),
                    family=address_family,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST,
                )
                for address_family, _, protocol, _, address in addresses
            ]

        async def close(self) -> None:
            threads.shutdown(wait=False, cancel_futures=True)

    return ThreadedResolver()


def _reason(error: Exception) -> str:
    """Leaves out the URL, which may have secrets: reasons go into logs and dead-letter queues."""
    import aiohttp

    why = str(error)
    if isinstance(error, aiohttp.InvalidURL):
        why = "the URL is not valid"
    elif isinstance(error, aiohttp.ClientResponseError):
        why = error.message
    return f"{type(error).__name__}: {why}"[:512]


async def _read_past(response: "aiohttp.ClientResponse") -> None:
    """Ignores errors: the status alone decides."""
    import aiohttp

    left = _READ_OF_ANSWER
    try:
        while left > 0:
            chunk = await response.content.read(left)
            if not chunk:
                return
            left -= len(chunk)
    except (aiohttp.ClientError, OSError, TimeoutError):
        pass
    response.close()
