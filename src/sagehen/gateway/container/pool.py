"""The connections to one address: kept open between requests, opened as they are needed."""

import asyncio
import logging
from collections import deque
from typing import Protocol

from sagehen.base.clock import Clock
from sagehen.gateway.container.connection import Upstream

__all__ = ["Pool", "Waiter"]

log = logging.getLogger(__name__)

CONNECTS_AT_ONCE = 32
"""A burst of requests must not overflow the other side's queue of new connections."""
CONNECT_TIMEOUT_SECONDS = 5.0
KEPT_IDLE = 512
"""Idle connections kept for one address."""
_BACKLOG_FULL_TRIES = 200
_BACKLOG_FULL_DELAY_SECONDS = 0.005

IDLE_UNIX_SECONDS = 30.0
"""Shorter than our own servers' 75 s, so that they never close a connection as it is used."""
IDLE_TCP_SECONDS = 1.0
"""A user's own container may close an idle connection after two seconds (gunicorn), and a request
sent at that moment could not be told from one that was begun."""


class Waiter(Protocol):
    """Who asked for a connection when there was none to give."""

    def connected(self, upstream: Upstream) -> None: ...

    def refused(self) -> None:
        """Nobody listens at the address: nothing was sent."""


class Pool:
    """`address` is `unix:/path` or `tcp:host:port`."""

    def __init__(self, address: str, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._idle: list[Upstream] = []
        self._waiting: deque[Waiter] = deque()
        self._connects: set[asyncio.Task[None]] = set()
        self._open: set[Upstream] = set()
        self._closed = False
        self._is_local = address.startswith("unix:")
        self._idle_seconds = IDLE_UNIX_SECONDS if self._is_local else IDLE_TCP_SECONDS

    def take(self, waiter: Waiter) -> Upstream | None:
        """A free connection; None where `waiter` will be told of one, or of there being none."""
        while self._idle:
            upstream = self._idle.pop()
            # The other side may have ended it in this very turn of the loop.
            if not upstream.transport.is_closing():
                return upstream
        self._waiting.append(waiter)
        if len(self._connects) < CONNECTS_AT_ONCE:
            self._connect_one_more()
        return None

    def forget(self, waiter: Waiter) -> None:
        """`waiter` no longer wants a connection."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def close_idle(self, now: float) -> None:
        """Close what nobody has used for a while. `now` is the clock's monotonic time."""
        limit = now - self._idle_seconds
        while self._idle and self._idle[0].idle_since < limit:
            # The oldest are at the front, as the last to be freed is the first to be taken.
            self._idle.pop(0).transport.close()

    def close(self) -> None:
        """Close what is idle now, and the rest as each becomes free."""
        self._closed = True
        self._close_all_idle()

    @property
    def is_done(self) -> bool:
        """It is closed, and nothing of it is left."""
        return self._closed and not self._open and not self._connects

    def abort(self) -> None:
        """Close everything at once, as the process ends."""
        self._closed = True
        for task in self._connects:
            task.cancel()
        for upstream in list(self._open):
            upstream.abandon()

    def _freed(self, upstream: Upstream) -> None:
        if upstream.transport.is_closing():
            return
        if self._waiting:
            self._waiting.popleft().connected(upstream)
        elif self._closed or len(self._idle) >= KEPT_IDLE:
            upstream.transport.close()
        else:
            upstream.idle_since = self._clock.monotonic()
            self._idle.append(upstream)

    def _lost(self, upstream: Upstream) -> None:
        self._open.discard(upstream)
        if upstream in self._idle:
            self._idle.remove(upstream)
        if upstream.broken:
            # The others may be about to end too, and what is sent on them would be lost. A new one
            # is refused where nobody listens any more, and the request goes to another instance.
            self._close_all_idle()

    def _close_all_idle(self) -> None:
        for upstream in self._idle:
            upstream.transport.close()
        self._idle.clear()

    def _connect_one_more(self) -> None:
        task = asyncio.get_running_loop().create_task(self._connect())
        self._connects.add(task)
        task.add_done_callback(self._connects.discard)

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                upstream = await self._open_connection()
        except OSError:  # TimeoutError is one
            self._refuse_waiting()
            return
        except Exception:
            # An address that makes no sense: whoever waits must not wait for ever.
            log.exception("No connection can be made to %s.", self._address)
            self._refuse_waiting()
            return
        self._open.add(upstream)
        self._freed(upstream)
        if len(self._waiting) > len(self._connects) - 1:
            self._connect_one_more()

    async def _open_connection(self) -> Upstream:
        loop = asyncio.get_running_loop()
        kind, _, place = self._address.partition(":")
        if kind == "tcp":
            host, _, port = place.rpartition(":")
            _, tcp = await loop.create_connection(self._make, host, int(port))
            return tcp
        for _ in range(_BACKLOG_FULL_TRIES):
            try:
                _, unix = await loop.create_unix_connection(self._make, place)
                return unix
            except BlockingIOError:
                # A Unix socket does not queue a connect when its backlog is full; it says so.
                await self._clock.sleep(_BACKLOG_FULL_DELAY_SECONDS)
        raise ConnectionRefusedError

    def _make(self) -> Upstream:
        return Upstream(self._freed, self._lost, self._is_local)

    def _refuse_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            waiter.refused()
