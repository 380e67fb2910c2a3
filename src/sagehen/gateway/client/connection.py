"""A client's connection to the gateway: within the limit on connections, or for health checks."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from sagehen.gateway.admission.errors import RuntimeRefusal, bad_http
from sagehen.gateway.client.limits import ClientLimits
from sagehen.gateway.control_unavailable import ControlUnavailable
from sagehen.http1.exchange import Exchange, Handler
from sagehen.http1.request_queue import ConnectionHost
from sagehen.http1.server import ServerConnection

__all__ = ["Connection", "GatewayHost"]

HEALTH = b"/_sagehen/health"


class GatewayHost(ConnectionHost, Protocol):
    """The gateway, as a connection uses it."""

    limits: ClientLimits

    def admit(self, connection: "Connection") -> bool: ...

    @property
    def dispatch(self) -> Callable[[Exchange], Handler]: ...

    def next_request_id(self) -> bytes: ...


class Connection(ServerConnection):
    """Its requests go to the gateway's handlers."""

    __slots__ = ("health_only",)

    _host: GatewayHost

    def __init__(self, host: GatewayHost) -> None:
        super().__init__(host)
        self.health_only = False
        """over the connection limit: answers only health checks"""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._host.admit(self):
            self._host.went_idle(self)
        else:
            self.turn_away()

    def make_exchange(self) -> Exchange:
        exchange = Exchange(self)
        exchange.request_id = request_id = self._host.next_request_id()
        exchange.id_line = b"x-amzn-RequestId: %b\r\n" % request_id
        return exchange

    def handler_of(self, exchange: Exchange) -> Handler:
        if exchange.fault is not None:
            return RuntimeRefusal(exchange, bad_http(*exchange.fault))
        if self.health_only:
            exchange.keep_alive = False
            if exchange.target.partition(b"?")[0] != HEALTH:
                return ControlUnavailable(exchange, _FULL % self._host.limits.connections)
        return self._host.dispatch(exchange)

    # Called to make room for other clients

    @property
    def is_answering(self) -> bool:
        return bool(self._unanswered)

    @property
    def is_sending(self) -> bool:
        """Whether the client has yet to read part of an answer."""
        return self._transport.get_write_buffer_size() > 0

    def turn_away(self) -> None:
        if self._lingering_since is not None:
            self._transport.abort()  # has its answer
            return
        self._transport.write(_TOO_MANY % self._host.next_request_id())
        self._discarding = True
        self._transport.close()

    def evict(self) -> None:
        self._discarding = True
        if self.is_sending:
            self._transport.abort()  # a graceful close would hang, as the client does not read
        else:
            self._transport.close()


_FULL = (
    "This gateway has %d clients connected already, and works on something for each "
    "(max_connections). Try again in a moment."
)
_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"x-amzn-ErrorType: ServiceUnavailable\r\nx-amzn-RequestId: %b\r\n"
    b"Content-Length: 0\r\n\r\n"
)
