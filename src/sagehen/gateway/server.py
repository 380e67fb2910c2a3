"""The public port: every client's connection, with one timer for all of them."""

import random
from collections.abc import Callable

from sagehen.clock import Clock
from sagehen.gateway.answers import date_line
from sagehen.gateway.connection import Connection
from sagehen.gateway.exchange import Exchange, Handler
from sagehen.gateway.limits import RESERVE, ClientLimits, Limit, LimitHits

__all__ = ["Dispatch", "Server"]

IDLE_SECONDS = 1.0
"""How long a connection is idle before it is closed for another: its client may have got an answer,
or the connection itself, just now, and be about to ask."""

Dispatch = Callable[[Exchange], Handler]
"""Says who answers a request, from its head."""


class Server:
    """What all connections share; `make_connection` is asyncio's protocol factory."""

    def __init__(
        self,
        dispatch: Dispatch,
        clock: Clock,
        rng: random.Random,
        limits: ClientLimits,
        limit_hits: LimitHits,
    ) -> None:
        self.dispatch = dispatch
        self.limits = limits
        self.limit_hits = limit_hits
        self.draining = False
        self.now = clock.monotonic()
        """Seconds, as of the last sweep: exact enough for time-outs, and free."""
        self.date_line = date_line(clock.now())
        self.connections: set[Connection] = set()
        self._idle: dict[Connection, float] = {}
        """Those on which nothing is asked, the longest idle first, and since when."""
        self._reserve: dict[Connection, None] = {}
        """Those beyond the limit, the oldest first."""
        self._clock = clock
        self._requests = 0
        self._id_prefix = _id_prefix(rng)

    def make_connection(self) -> Connection:
        return Connection(self)

    def admit(self, connection: Connection) -> bool:
        """Whether a new connection may be kept.

        Where as many are connected as may be, the one that has been idle the longest is closed.
        Where none may be closed, the new one may still ask for the server's health,
        in one of a few places of the reserve; the oldest that asks nothing there leaves it to the
        newest.
        """
        if len(self.connections) - len(self._reserve) >= self.limits.connections:
            idlest = self._idlest()
            if idlest is not None:
                self.limit_hits[Limit.EVICTED] += 1
                self._idle.pop(idlest)
                idlest.evict()
            else:
                self.limit_hits[Limit.CONNECTIONS] += 1
                if not self._admit_to_reserve(connection):
                    return False
        self.connections.add(connection)
        return True

    def _idlest(self) -> Connection | None:
        """The longest idle that may be closed: for a moment at least, and with its answer sent."""
        now = self._clock.monotonic()
        for connection, since in self._idle.items():
            if now - since < IDLE_SECONDS:
                break
            if not connection.is_sending or now - since >= self.limits.stall_seconds:
                return connection
        return None

    def _admit_to_reserve(self, connection: Connection) -> bool:
        if len(self._reserve) >= RESERVE:
            oldest = next((one for one in self._reserve if not one.is_answering), None)
            if oldest is None:
                return False
            self._reserve.pop(oldest)
            oldest.turn_away()
        connection.health_only = True
        self._reserve[connection] = None
        return True

    def went_idle(self, connection: Connection) -> None:
        """Nothing is asked on it: it may be closed for another."""
        if not connection.health_only:
            self._idle[connection] = self.now

    def went_busy(self, connection: Connection) -> None:
        self._idle.pop(connection, None)

    def lost(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._idle.pop(connection, None)
        self._reserve.pop(connection, None)

    def next_request_id(self) -> bytes:
        """In the form of a UUID: one random part for the process, counted on."""
        self._requests += 1
        return b"%b%012x" % (self._id_prefix, self._requests)

    def sweep(self) -> None:
        """Cut off whoever has taken too long. To be called about once a second."""
        self.now = self._clock.monotonic()
        self.date_line = date_line(self._clock.now())
        for connection in list(self.connections):
            connection.cut_off_if_overdue(self.now)

    def drain(self) -> None:
        """From now on every answer ends its connection; idle ones end with a later sweep."""
        self.draining = True

    def abort(self) -> None:
        """Cut everybody off."""
        for connection in list(self.connections):
            connection.abort()


def _id_prefix(rng: random.Random) -> bytes:
    bits = rng.getrandbits
    return b"%08x-%04x-4%03x-a%03x-" % (bits(32), bits(16), bits(12), bits(12))
