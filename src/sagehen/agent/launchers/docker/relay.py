"""Lets containers reach this server where it listens on a loopback address only.

A job's code calls the server with boto3. In a container 127.0.0.1 is the container itself, so the
agent listens on the machine's address in the containers' network and passes on what comes there.
Signatures are checked as always.
"""

import asyncio
import contextlib
import ipaddress
import logging
from functools import partial
from urllib.parse import urlsplit

from sagehen.agent.errors import CannotStart

__all__ = ["ServerRelay"]

log = logging.getLogger(__name__)

CHUNK_BYTES = 64 * 1024


class ServerRelay:
    """Listens once for each network and server."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, str], asyncio.Server] = {}
        self._lock = asyncio.Lock()

    async def url(self, server_url: str, gateway: str, listening_on: str) -> str:
        """Returns the server's URL for containers of the network with that `gateway`.

        Args:
            listening_on: the server's own address: the setting `host`.

        Raises:
            CannotStart: the gateway is no address of this machine.
        """
        parts = urlsplit(server_url)
        port = parts.port or 80
        if _is_unspecified(listening_on):
            return f"http://{gateway}:{port}"
        if not _is_loopback(parts.hostname or ""):
            return server_url
        async with self._lock:
            server = self._servers.get((gateway, server_url))
            if server is None:
                server = await self._listen(gateway, parts.hostname or "", port)
                self._servers[gateway, server_url] = server
        return f"http://{gateway}:{server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    async def _listen(self, gateway: str, host: str, port: int) -> asyncio.Server:
        serve = partial(_relay, host, port)
        try:
            try:
                return await asyncio.start_server(serve, gateway, port)
            except OSError:
                return await asyncio.start_server(serve, gateway, 0)
        except OSError as error:
            raise CannotStart(
                f"containers cannot reach this server: {gateway}, the machine's address in their "
                f"network, cannot be listened on ({error.strerror}). Set host to an address that "
                "containers reach"
            ) from error


async def _relay(
    host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    with contextlib.suppress(OSError):
        server_reader, server_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(_copy(reader, server_writer), _copy(server_reader, writer))
    writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


def _is_unspecified(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_unspecified
    return False


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
