"""Carries what a node without a control has for one, over TLS to the control that leads.

    gateway ──► the node's control socket ──(relay: TLS)──► door of the leader ──► its socket

Both ends move bytes and look at none.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sagehen.base.clock import Clock
from sagehen.base.cluster_certificates import client_context, server_context, server_name
from sagehen.base.home import Home
from sagehen.frame.routes import RouteFileReader

__all__ = ["serving_control_door", "serving_control_relay"]

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
PIECE_BYTES = 256 * 1024

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def serving_control_door(listener: socket.socket, home: Home) -> AsyncIterator[None]:
    """Lets members of the cluster reach this machine's control until the block ends."""

    async def connect() -> Streams:
        return await asyncio.open_unix_connection(home.control_socket)

    server = await asyncio.start_server(
        _carrier(connect), sock=listener, ssl=server_context(home.cluster)
    )
    async with _closing(server):
        yield


@asynccontextmanager
async def serving_control_relay(home: Home, clock: Clock) -> AsyncIterator[None]:
    """Stands in for a control on this machine until the block ends."""
    table = RouteFileReader(home.routes, clock)
    context = client_context(home.cluster)

    async def connect() -> Streams:
        table.refresh_if_old()
        return await _connect_to_leader(table, context)

    home.control_socket.unlink(missing_ok=True)
    path: Path = home.control_socket
    server = await asyncio.start_unix_server(_carrier(connect), path)
    async with _closing(server):
        yield


@asynccontextmanager
async def _closing(server: asyncio.Server) -> AsyncIterator[None]:
    try:
        yield
    finally:
        server.close()


async def _connect_to_leader(table: RouteFileReader, context: ssl.SSLContext) -> Streams:
    """Raises OSError."""
    for node_id, node in table.table.nodes.items():
        if node.control_address:
            host, _, port = node.control_address.rpartition(":")
            return await asyncio.open_connection(
                host.strip("[]"), int(port), ssl=context, server_hostname=server_name(node_id)
            )
    raise ConnectionRefusedError("No control has sent its address yet.")


def _carrier(
    connect: Callable[[], Awaitable[Streams]],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                there, back = await connect()
        except OSError as error:  # includes TimeoutError
            # The gateway answers 503 for a connection that ends.
            log.debug("The control that leads cannot be reached: %s", error)
            writer.close()
            return
        await asyncio.gather(_pump(reader, back), _pump(there, writer))

    return carry


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Moves bytes until one side ends; then closes the other."""
    with contextlib.suppress(OSError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    writer.close()
