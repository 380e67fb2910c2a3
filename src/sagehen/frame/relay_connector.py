"""Connects to containers of all nodes; see `frame/container_relay.py`."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from sagehen.base.clock import Clock
from sagehen.base.cluster_certificates import client_context, server_name
from sagehen.base.errors import HomeError
from sagehen.frame.container_relay import (
    ALPN,
    BROKEN_LENGTH,
    LENGTH,
    RelayAnswer,
    RelayNodes,
    RelayOutcome,
    RelayRequest,
    RemoteContainer,
    encode_message,
    read_message,
)
from sagehen.http1.pool import open_connection

__all__ = ["RelayConnector"]

Connection = TypeVar("Connection", bound=asyncio.Protocol)


class RelayConnector:
    """A connector to containers of all nodes: those of this machine are opened as ever.

    `nodes` returns the other nodes; None while another control leads.
    """

    def __init__(self, nodes: Callable[[], RelayNodes | None]) -> None:
        self._nodes = nodes
        self._context: ssl.SSLContext | None = None
        self._open: set[_RelayedConnection] = set()

    async def __call__(
        self, address: str, make: Callable[[], Connection], clock: Clock
    ) -> Connection:
        """Raises OSError: then nothing was sent to the container."""
        container = RemoteContainer.parse(address)
        if container is None:
            return await open_connection(address, make, clock)
        nodes = self._nodes()
        agent_address = None if nodes is None else nodes.addresses.get(container.node_id)
        if nodes is None or agent_address is None:
            raise ConnectionRefusedError(f"The node {container.node_id} does not answer now.")
        way = _RelayedConnection(container.node_id, agent_address, make, self._open.discard)
        try:
            await self._reach(way, nodes)
        except OSError:  # An untrusted certificate is a ValueError, too.
            raise
        except (ValueError, OverflowError) as error:  # Callers take an OSError for a refusal.
            raise ConnectionRefusedError(
                f"The node {container.node_id} has the address {agent_address!r}: {error}"
            ) from error
        self._open.add(way)
        request = RelayRequest(
            epoch=nodes.epoch, instance_id=container.instance_id, container=container.number
        )
        return cast("Connection", await way.begin(request))

    async def _reach(self, way: "_RelayedConnection", nodes: RelayNodes) -> None:
        """Raises OSError; ValueError or OverflowError for an address that is none."""
        host, _, port = way.agent_address.rpartition(":")
        await asyncio.get_running_loop().create_connection(
            lambda: way,
            host.strip("[]"),
            int(port),
            ssl=self._tls(nodes),
            server_hostname=server_name(way.node_id),
        )

    def cut_lost(self) -> None:
        """Ends all connections to nodes that are gone, have stopped answering or have another agent
        now: a machine that hangs does not end them."""
        nodes = self._nodes()
        for way in list(self._open):
            if nodes is None or nodes.addresses.get(way.node_id) != way.agent_address:
                way.abort()

    def _tls(self, nodes: RelayNodes) -> ssl.SSLContext:
        if self._context is None:
            try:
                self._context = client_context(Path(nodes.certificates))
            except HomeError as error:  # Callers take an OSError for a refusal.
                raise ConnectionRefusedError(str(error)) from error
            self._context.set_alpn_protocols([ALPN])
        return self._context


class _RelayedConnection(asyncio.Protocol):
    """Stands between the connection to the agent and the protocol of the container's client."""

    def __init__(
        self,
        node_id: str,
        agent_address: str,
        make: Callable[[], asyncio.Protocol],
        on_end: Callable[["_RelayedConnection"], None],
    ) -> None:
        self.node_id = node_id
        self.agent_address = agent_address
        self._make = make
        self._on_end = on_end
        self._transport: asyncio.Transport
        self._opened: asyncio.Future[asyncio.Protocol] = asyncio.get_running_loop().create_future()
        # The caller may have given up.
        self._opened.add_done_callback(lambda opened: opened.cancelled() or opened.exception())
        self._client: asyncio.Protocol | None = None
        """from the answer to the end"""
        self._received = bytearray()
        """of the answer, or of a frame's length"""
        self._frame_left = 0
        """bytes"""

    async def begin(self, request: RelayRequest) -> asyncio.Protocol:
        """Returns the client's protocol once the container is reached. Raises OSError."""
        try:
            tls = self._transport.get_extra_info("ssl_object")
            if tls.selected_alpn_protocol() != ALPN:
                raise ConnectionRefusedError(
                    f"The node {self.node_id} has a version of Sagehen without this relay."
                )
            self._transport.write(encode_message(request))
            return await self._opened
        except BaseException:
            self._opened.cancel()
            self.abort()
            raise

    def abort(self) -> None:
        self._transport.abort()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._client is None:
            data = self._read_answer(data)
        position = 0
        while position < len(data) and self._client is not None:
            if self._transport.is_closing():
                return
            if self._frame_left:
                piece = data[position : position + self._frame_left]
                position += len(piece)
                self._frame_left -= len(piece)
                self._client.data_received(piece)
            else:
                part = data[position : position + LENGTH.size - len(self._received)]
                position += len(part)
                self._received += part
                self._begin_frame()

    def _read_answer(self, data: bytes) -> bytes:
        """Returns what follows the answer."""
        self._received += data
        try:
            answer = read_message(self._received, RelayAnswer)
        except ValueError as error:
            self._refuse(f"The answer of the node {self.node_id} cannot be read: {error}")
            return b""
        if answer is None:
            return b""
        if answer.outcome is not RelayOutcome.OPEN:
            self._refuse(answer.reason or answer.outcome)
            return b""
        if self._opened.done():
            return b""  # nobody waits any more
        rest, self._received = bytes(self._received), bytearray()
        self._client = client = self._make()
        client.connection_made(self._transport)
        self._opened.set_result(client)
        return rest

    def _begin_frame(self) -> None:
        if len(self._received) < LENGTH.size:
            return
        (length,) = LENGTH.unpack(self._received)
        self._received.clear()
        if length == BROKEN_LENGTH:
            self._end(ConnectionAbortedError("The container's connection was lost."))
        elif not length:
            self._end(None)
        self._frame_left = length

    def _end(self, error: Exception | None) -> None:
        client, self._client = self._client, None
        self._transport.abort()
        if client is not None:
            if error is None:
                client.eof_received()
            client.connection_lost(error)

    def _refuse(self, reason: str) -> None:
        if not self._opened.done():
            self._opened.set_exception(ConnectionRefusedError(reason))
        self._transport.abort()

    def pause_writing(self) -> None:
        if self._client is not None:
            self._client.pause_writing()

    def resume_writing(self) -> None:
        if self._client is not None:
            self._client.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end(self)
        self._refuse(f"The node {self.node_id} ended the connection before it answered.")
        client, self._client = self._client, None
        if client is not None:
            # Also without `exc`, this is not the container's own end. What is left in the socket is
            # encrypted: the client must not look there, as it does after a reset.
            lost = ConnectionAbortedError(f"The way to the node {self.node_id} was lost: {exc}")
            client.connection_lost(lost)
