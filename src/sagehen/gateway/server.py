"""The public port: every client's connection, with one timer for all of them."""

import random
from collections.abc import Callable

from sagehen.clock import Clock
from sagehen.gateway.answers import date_line
from sagehen.gateway.connection import Connection
from sagehen.gateway.exchange import Exchange, Handler
from sagehen.gateway.limits import ClientLimits, LimitHits

__all__ = ["Dispatch", "Server"]

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
        self._clock = clock
        self._requests = 0
        self._id_prefix = _id_prefix(rng)

    def make_connection(self) -> Connection:
        return Connection(self)

    @property
    def is_full(self) -> bool:
        return len(self.connections) >= self.limits.connections

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
