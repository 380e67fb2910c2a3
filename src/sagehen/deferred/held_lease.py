"""A lease that one loop holds for as long as it runs."""

import asyncio
import contextlib
import logging

from sqlalchemy.exc import SQLAlchemyError

from sagehen.clock import Clock
from sagehen.store import leases
from sagehen.store.database import Database

__all__ = ["HeldLease"]

log = logging.getLogger(__name__)

LEASE_SECONDS = 5.0
RENEW_SECONDS = 1.5


class HeldLease:
    """One control at a time does a thing; one that dies leaves it to another after some seconds."""

    def __init__(self, database: Database, clock: Clock, name: str, holder: str) -> None:
        """`holder` names the home and its machine: after a restart it has the lease at once."""
        self._database = database
        self._clock = clock
        self._name = name
        self._holder = holder
        self._renewed: float | None = None

    async def is_held(self) -> bool:
        """Whether it is ours; taken or renewed where it is time to."""
        now = self._clock.monotonic()
        if self._renewed is not None and now - self._renewed < RENEW_SECONDS:
            return True
        self._renewed = now if await asyncio.to_thread(self._acquire) else None
        return self._renewed is not None

    async def let_go(self) -> None:
        """Give it back; where that fails it runs out by itself."""
        if self._renewed is not None:
            self._renewed = None
            with contextlib.suppress(SQLAlchemyError):
                await asyncio.to_thread(self._release)

    def _acquire(self) -> bool:
        with self._database.write() as connection:
            return leases.acquire(
                connection, self._name, self._holder, self._clock.now(), LEASE_SECONDS
            )

    def _release(self) -> None:
        with self._database.write() as connection:
            leases.release(connection, self._name, self._holder)
