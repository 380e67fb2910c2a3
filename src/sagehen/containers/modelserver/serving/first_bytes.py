"""Tells links from HTTP connections by the first bytes that arrive."""

import asyncio
from pathlib import Path
from typing import cast

from sagehen.containers.modelserver.serving.connection import Connection
from sagehen.containers.modelserver.serving.link_connection import LinkConnection
from sagehen.containers.modelserver.serving.server import ModelServer
from sagehen.link.frames import PREFACE

__all__ = ["FirstBytes"]


class FirstBytes(asyncio.Protocol):
    """Tells from a connection's first bytes whether it speaks HTTP/1.1 or is a link."""

    def __init__(self, server: ModelServer, marks_folder: Path | None) -> None:
        self._server = server
        self._marks_folder = marks_folder
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        received = self._received = self._received + data
        if len(received) < len(PREFACE) and PREFACE.startswith(received):
            return
        is_link = received.startswith(PREFACE)
        protocol = (
            LinkConnection(self._server, self._marks_folder)
            if is_link
            else Connection(self._server)
        )
        self._server.connections.discard(self)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(received[len(PREFACE) :] if is_link else received)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.lost(self)

    # Called by the server

    def cut_off_if_overdue(self, now: float) -> None: ...

    def turn_away(self) -> None: ...

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()
