"""A pool of connections to one address."""

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from sagehen.base.clock import Clock
from sagehen.http1.client import ClientConnection
from sagehen.http1.handoff import receive_socket

__all__ = [
    "CONNECT_TIMEOUT_SECONDS",
    "Connector",
    "Pool",
    "Tls",
    "Waiter",
    "connect_to_unix_socket",
    "open_connection",
]

log = logging.getLogger(__name__)

Connection = TypeVar("Connection", bound=asyncio.Protocol)

CONNECTS_AT_ONCE = 32
"""a burst must not overflow the peer's backlog"""
CONNECT_TIMEOUT_SECONDS = 5.0
KEPT_IDLE = 512
_BACKLOG_FULL_TRIES = 200
_BACKLOG_FULL_DELAY_SECONDS = 0.005

IDLE_OURS_SECONDS = 30.0
"""less than our servers' 75 s, so that they never close a connection in use"""
IDLE_TCP_SECONDS = 1.0
"""Containers may close idle connections after two seconds (gunicorn): a request sent at that moment
may or may not have begun."""


class Tls(NamedTuple):
    """How TCP connections are encrypted, and the name that the peer's certificate must have."""

    context: ssl.SSLContext
    server_name: str


class Connector(Protocol):
    """Opens a connection to an address."""

    async def __call__(
        self, address: str, make: Callable[[], Connection], clock: Clock
    ) -> Connection:
        """Raises OSError: then nothing was sent."""


class Waiter(Protocol):
    """A request that waits for a connection."""

    def connected(self, connection: ClientConnection) -> None: ...

    def refused(self) -> None:
        """Nothing was sent."""


class Pool:
    """Connections to one `address`: `unix:/path`, `tcp:host:port` or `handoff:/path`.

    Args:
        reuses_connections: for several requests, one after the other.
        tls: of a TCP address; then the peer is a server of ours, too.
        connector: for addresses that only it knows; without `tls`.
    """

    def __init__(
        self,
        address: str,
        clock: Clock,
        reuses_connections: bool = True,
        tls: Tls | None = None,
        connector: Connector | None = None,
    ) -> None:
        self._reuses_connections = reuses_connections
        self._connector: Connector = connector or partial(open_connection, tls=tls)
        self._address = address
        self._clock = clock
        self._idle: list[ClientConnection] = []
        self._waiting: deque[Waiter] = deque()
        self._connects: set[asyncio.Task[None]] = set()
        self._open: set[ClientConnection] = set()
        self._closed = False
        self.has_connected = False
        """ever"""
        self._is_local = address.startswith("unix:")
        self._is_direct = self._is_local and connector is None
        is_ours = self._is_local or tls is not None
        self._idle_seconds = IDLE_OURS_SECONDS if is_ours else IDLE_TCP_SECONDS

    def take(self, waiter: Waiter) -> ClientConnection | None:
        """Returns None if `waiter` will be called."""
        while self._idle:
            connection = self._idle.pop()
            # The peer may have closed it in this turn of the loop.
            if not connection.transport.is_closing():
                return connection
        self._waiting.append(waiter)
        if len(self._connects) < CONNECTS_AT_ONCE:
            self._connect_one_more()
        return None

    def forget(self, waiter: Waiter) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def close_idle(self, now: float) -> None:
        """`now`: monotonic seconds."""
        limit = now - self._idle_seconds
        while self._idle and self._idle[0].idle_since < limit:
            # The oldest are at the front: the last freed is the first taken.
            self._idle.pop(0).transport.close()

    def close(self) -> None:
        """Closes idle connections now, busy ones when they become free."""
        self._closed = True
        self._close_all_idle()

    @property
    def is_done(self) -> bool:
        """Whether it is closed, and its last connection gone."""
        return self._closed and not self._open and not self._connects

    def abort(self) -> None:
        """Closes everything at once."""
        self._closed = True
        for task in self._connects:
            task.cancel()
        for connection in list(self._open):
            connection.abandon()

    def _freed(self, connection: ClientConnection) -> None:
        if connection.transport.is_closing():
            return
        if not self._reuses_connections:
            connection.transport.close()
        else:
            self._hand_out(connection)

    def _hand_out(self, connection: ClientConnection) -> None:
        if self._waiting:
            self._waiting.popleft().connected(connection)
        elif self._closed or len(self._idle) >= KEPT_IDLE:
            connection.transport.close()
        else:
            connection.idle_since = self._clock.monotonic()
            self._idle.append(connection)

    def _lost(self, connection: ClientConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if connection.broken:
            # The others may be about to end too. If the peer is gone, a new one is refused, and the
            # request goes to another instance.
            self._close_all_idle()

    def _close_all_idle(self) -> None:
        for connection in self._idle:
            connection.transport.close()
        self._idle.clear()

    def _connect_one_more(self) -> None:
        task = asyncio.get_running_loop().create_task(self._connect())
        self._connects.add(task)
        task.add_done_callback(self._connects.discard)

    async def _connect(self) -> None:
        # A Unix socket connects at once: a time-out would only measure that this process was not
        # given the processor, and refuse what can be served.
        timeout = None if self._is_direct else CONNECT_TIMEOUT_SECONDS
        try:
            async with asyncio.timeout(timeout):
                connection = await self._connector(self._address, self._make, self._clock)
        except OSError:  # includes TimeoutError
            self._refuse_waiting()
            return
        except Exception:
            # An invalid address: requests must not wait for ever.
            log.exception("No connection can be made to %s.", self._address)
            self._refuse_waiting()
            return
        self.has_connected = True
        self._open.add(connection)
        if not connection.transport.is_closing():
            self._hand_out(connection)
        if len(self._waiting) > len(self._connects) - 1:
            self._connect_one_more()

    def _make(self) -> ClientConnection:
        return ClientConnection(self._freed, self._lost, self._is_local)

    def _refuse_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            waiter.refused()


async def open_connection(
    address: str, make: Callable[[], Connection], clock: Clock, tls: Tls | None = None
) -> Connection:
    """`address`: as of `Pool`, or `link:/path`, whose socket takes HTTP, too. Raises OSError."""
    loop = asyncio.get_running_loop()
    kind, _, target = address.partition(":")
    if kind == "tcp":
        host, _, port = target.rpartition(":")
        if tls is None:
            _, tcp = await loop.create_connection(make, host, int(port))
        else:
            _, tcp = await loop.create_connection(
                make, host, int(port), ssl=tls.context, server_hostname=tls.server_name
            )
        return tcp
    if kind == "handoff":
        return await _past_full_backlog(lambda: _receive_connection(target, make), clock)
    return await connect_to_unix_socket(target, make, clock)


async def connect_to_unix_socket(
    path: str, make: Callable[[], Connection], clock: Clock
) -> Connection:
    """Raises OSError."""
    loop = asyncio.get_running_loop()

    async def connect() -> Connection:
        _, protocol = await loop.create_unix_connection(make, path)
        return protocol

    return await _past_full_backlog(connect, clock)


async def _past_full_backlog(
    connect: Callable[[], Awaitable[Connection]], clock: Clock
) -> Connection:
    for _ in range(_BACKLOG_FULL_TRIES):
        try:
            return await connect()
        except BlockingIOError:
            # A Unix socket fails at once when the backlog is full.
            await clock.sleep(_BACKLOG_FULL_DELAY_SECONDS)
    raise ConnectionRefusedError


async def _receive_connection(path: str, make: Callable[[], Connection]) -> Connection:
    return await _adopt(await receive_socket(path), make)


async def _adopt(connected: socket.socket, make: Callable[[], Connection]) -> Connection:
    try:
        _, connection = await asyncio.get_running_loop().create_connection(make, sock=connected)
    except BaseException:
        connected.close()
        raise
    return connection
