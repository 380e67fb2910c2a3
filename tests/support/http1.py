"""A small server on http1's connection, whose requests a test answers."""

import math
from typing import Any

from sagehen.http1.exchange import Exchange, Handler
from sagehen.http1.limits import ConnectionLimit, ConnectionLimits
from sagehen.http1.server import ServerConnection

__all__ = ["LIMITS", "Connection", "Host", "Recorder"]

LIMITS = ConnectionLimits(
    head_bytes=4096,
    head_seconds=30,
    stall_seconds=60,
    answer_seconds=math.inf,
    idle_seconds=300,
)


class Host:
    """Keeps its connection's requests; `answers_at_once` answers each when it is whole."""

    date_line = b"Date: Sun, 01 Nov 2026 09:30:00 GMT\r\n"

    def __init__(self, answers_at_once: bool = False) -> None:
        self.limits = LIMITS
        self.now = 1000.0
        self.draining = False
        self.hits: list[ConnectionLimit] = []
        self.answers_at_once = answers_at_once
        self.requests: list[Recorder] = []
        """begun, in their order"""

    def went_idle(self, connection: Any) -> None: ...

    def went_busy(self, connection: Any) -> None: ...

    def lost(self, connection: Any) -> None: ...

    def limit_hit(self, limit: ConnectionLimit) -> None:
        self.hits.append(limit)


class Recorder:
    """Handles one request: notes what comes, and answers when it is told to."""

    def __init__(self, exchange: Exchange, host: Host) -> None:
        self.exchange = exchange
        self.received = b""
        self.is_whole = False
        self.gone = False
        self.full = False
        self._host = host
        host.requests.append(self)

    def begin(self) -> None:
        if self.exchange.fault is not None:
            message, status = self.exchange.fault
            self.exchange.answer(status, b"", message.encode())
        elif self.exchange.channel.is_current(self.exchange):
            self.exchange.continue_if_expected()

    def body(self, data: bytes) -> None:
        self.received += data

    def whole(self) -> None:
        self.is_whole = True
        if self._host.answers_at_once:
            self.answer()

    def answer(self, status: int = 200, body: bytes = b"") -> None:
        self.exchange.answer(status, b"", body)

    def client_full(self) -> None:
        self.full = True

    def client_drained(self) -> None:
        self.full = False

    def client_gone(self) -> None:
        self.gone = True


class Connection(ServerConnection):
    __slots__ = ()

    _host: Host

    def make_exchange(self) -> Exchange:
        return Exchange(self)

    def handler_of(self, exchange: Exchange) -> Handler:
        return Recorder(exchange, self._host)
