"""A lease that one loop holds for as long as it runs."""

import contextlib

from sqlalchemy.exc import SQLAlchemyError

from sagehen.clock import Clock
from sagehen.store.database import Database
from sagehen.store.lease_lock import LeaseLock
from sagehen.store.leases import Lease
from sagehen.threads import in_thread

__all__ = ["LEASE_SECONDS", "HeldLease"]

LEASE_SECONDS = 5.0
RENEW_SECONDS = 1.5


class HeldLease:
    """One control at a time does a thing; one that dies leaves it to another after some seconds.

    Where all controls of a state are on one machine, they hold a lock on a file besides (see
    `Database.lease_lock`). Then the row is written once: nobody else may take it, even after it
    has run out, while the lock is held.
    """

    def __init__(self, database: Database, clock: Clock, name: str, holder: str) -> None:
        """`holder` names the home and its machine, not the process: after a restart it has the
        lease at once."""
        self.lease = Lease(name=name, holder=holder, ttl_seconds=LEASE_SECONDS)
        self._database = database
        self._clock = clock
        file = database.lease_lock(name)
        self._lock = None if file is None else LeaseLock(file)
        self._renewed: float | None = None
        """Monotonic; None while another holds it, or nobody."""
        self._is_locked_by_another = False

    @property
    def is_ours(self) -> bool:
        """As far as is known."""
        return self._renewed is not None

    async def hold(self) -> bool:
        """Take it, or renew it where it is time to; False while another has it."""
        now = self._clock.monotonic()
        locked = None if self._lock is None else self._lock.take()
        self._is_locked_by_another = locked is False
        if locked is False:
            self._renewed = None
        elif self._renewed is None or (not locked and now - self._renewed >= RENEW_SECONDS):
            self._renewed = now if await in_thread(self._acquire) else None
        return self.is_ours

    def other_holder(self) -> str | None:
        """Who holds it, where that is another. To be called in a thread, after `hold`."""
        # Who holds the lock writes its row once, and the row runs out.
        now = None if self._is_locked_by_another else self._clock.now()
        with self._database.read() as connection:
            return self.lease.other_holder(connection, now)

    def lose(self) -> None:
        """Another was seen to have it."""
        self._renewed = None
        if self._lock is not None:
            self._lock.release()

    async def let_go(self) -> None:
        """Give it back; where that fails it runs out by itself."""
        if self.is_ours:
            self._renewed = None
            with contextlib.suppress(SQLAlchemyError):
                await in_thread(self._release)
        if self._lock is not None:
            self._lock.release()

    def _acquire(self) -> bool:
        with self._database.write() as connection:
            return self.lease.acquire(connection, self._clock.now())

    def _release(self) -> None:
        with self._database.write() as connection:
            self.lease.release(connection)
