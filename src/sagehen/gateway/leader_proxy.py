"""Sends invocations to the gateways of the server that leads, while this one stands by.

That server runs on this machine and has the same keys: they share a state in PostgreSQL.
"""

from sagehen.base.clock import Clock
from sagehen.gateway.control_proxy import ControlProxy
from sagehen.gateway.control_unavailable import answer_leader_unavailable
from sagehen.http1.exchange import Exchange
from sagehen.http1.pool import Pool

__all__ = ["Leader", "LeaderProxy"]

_FORWARDED = b"x-sagehen-forwarded"


class Leader:
    """The connections to the leader; none while this server leads, or knows no way to it."""

    def __init__(self, clock: Clock) -> None:
        self.pool: Pool | None = None
        self._clock = clock
        self._address: str | None = None

    def follow(self, address: str | None) -> None:
        if address == self._address:
            return
        if self.pool is not None:
            self.pool.close()
        self._address = address
        self.pool = None if address is None else Pool(address, self._clock)

    def pool_for(self, exchange: Exchange) -> Pool | None:
        """Returns None for what another gateway has forwarded: two that stand by must not send it
        to and fro."""
        if any(name.lower() == _FORWARDED for name, _ in exchange.headers):
            return None
        return self.pool


class LeaderProxy(ControlProxy):
    """Streams one invocation to the leader, and the answer back."""

    __slots__ = ()

    def _head(self) -> bytes:
        head = super()._head()
        return head[:-2] + _FORWARDED + b": 1\r\n\r\n"

    def _answer_unavailable(self) -> None:
        answer_leader_unavailable(self._exchange)
