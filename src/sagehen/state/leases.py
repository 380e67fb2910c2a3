"""Leases decide which control may run a loop; a lease that is not renewed in time is free.

`HeldLease` keeps a lease while a loop runs; `LeaseLock` locks a file, which spares the renewals
among controls of one machine.
"""

import contextlib
import fcntl
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Column, Connection, Double, String, Table, or_, select, update
from sqlalchemy.exc import SQLAlchemyError

from sagehen.base.clock import Clock
from sagehen.base.concurrency import in_thread
from sagehen.base.errors import SagehenError
from sagehen.state.database import Database
from sagehen.state.rows import METADATA, delete_where, inserts, upsert

__all__ = [
    "LEASES",
    "LEASE_SECONDS",
    "HeldLease",
    "Lease",
    "LeaseLock",
    "LeaseLost",
    "acquire",
    "holder",
    "release",
    "renew",
]

log = logging.getLogger(__name__)

LEASES = Table(
    "leases",
    METADATA,
    Column("name", String(128), primary_key=True),
    Column("holder", String(128), nullable=False),
    Column("expires_at", Double, nullable=False),
)


def acquire(connection: Connection, name: str, holder: str, now: float, ttl_seconds: float) -> bool:
    """Takes or extends the lease until `now + ttl_seconds`; returns False while another
    holds it."""
    statement = upsert(connection, LEASES).values(
        name=name, holder=holder, expires_at=now + ttl_seconds
    )
    statement = statement.on_conflict_do_update(
        index_elements=[LEASES.c.name],
        set_={"holder": holder, "expires_at": now + ttl_seconds},
        where=or_(LEASES.c.expires_at <= now, LEASES.c.holder == holder),
    )
    return inserts(connection, statement)


def renew(connection: Connection, name: str, holder: str, now: float, ttl_seconds: float) -> bool:
    """Extends the lease to `now + ttl_seconds`; returns False if another has taken it.

    An expired lease can be renewed while nobody else took it.
    """
    mine = (LEASES.c.name == name) & (LEASES.c.holder == holder)
    statement = update(LEASES).where(mine).values(expires_at=now + ttl_seconds)
    return connection.execute(statement).rowcount == 1


def holder(connection: Connection, name: str, now: float | None) -> str | None:
    """Returns the holder at `now`; None where the lease is free.

    Without `now`, returns the last holder, even of an expired lease.
    """
    query = select(LEASES.c.holder).where(LEASES.c.name == name)
    if now is not None:
        query = query.where(LEASES.c.expires_at > now)
    found = connection.execute(query).scalar()
    return None if found is None else str(found)


def release(connection: Connection, name: str, holder: str) -> bool:
    """Returns False where the lease is no longer the holder's."""
    return delete_where(connection, LEASES, LEASES.c.name == name, LEASES.c.holder == holder)


class LeaseLost(SagehenError):
    """Another control holds the lease now; nothing was written."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right of one control at a time to change what a loop changes."""

    name: str
    holder: str
    ttl_seconds: float

    def acquire(self, connection: Connection, now: float) -> bool:
        return acquire(connection, self.name, self.holder, now, self.ttl_seconds)

    def renew(self, connection: Connection, now: float) -> None:
        """Renews the lease in the transaction of a write, so that only the holder writes.

        Raises LeaseLost.
        """
        if not renew(connection, self.name, self.holder, now, self.ttl_seconds):
            raise LeaseLost(f"{self.holder} no longer holds the lease {self.name}.")

    def other_holder(self, connection: Connection, now: float | None) -> str | None:
        """Returns the holder at `now` if it is another one; see `holder`."""
        found = holder(connection, self.name, now)
        return None if found == self.holder else found

    def release(self, connection: Connection) -> None:
        release(connection, self.name, self.holder)


class LeaseLock:
    """A lock on a file, held until `release` or until the process ends.

    The kernel frees it at once when the process dies, so its holder need not renew a row, which
    would wait for the disk each time.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor: int | None = None
        self._told = False

    @property
    def is_held(self) -> bool:
        return self._descriptor is not None

    def take(self) -> bool | None:
        """Returns whether the lock is held now; None where the file cannot be locked."""
        if self._descriptor is not None:
            return True
        try:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._cannot(error)
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            self._cannot(error)
            return None
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Releases the lock. The file stays, because waiting processes may have it open."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _cannot(self, error: OSError) -> None:
        if not self._told:
            self._told = True
            about = {"action": "lock_lease", "file": str(self._file), "reason": str(error)}
            log.warning("A lease cannot be locked and is renewed instead.", extra=about)


LEASE_SECONDS = 5.0
RENEW_SECONDS = 1.5


class HeldLease:
    """A lease that one control holds while it runs a loop; if it dies, another takes over within
    seconds.

    Where all controls of a state are on one machine, they also hold a file lock (see
    `Database.lease_lock`). The row is then written once: while the lock is held, nobody takes even
    an expired lease.
    """

    def __init__(self, database: Database, clock: Clock, name: str, holder: str) -> None:
        """`holder` names the home and its machine, not the process: a restarted control gets its
        lease back at once."""
        self.lease = Lease(name=name, holder=holder, ttl_seconds=LEASE_SECONDS)
        self._database = database
        self._clock = clock
        file = database.lease_lock(name)
        self._lock = None if file is None else LeaseLock(file)
        self._renewed: float | None = None
        """seconds, monotonic; None while the lease is not ours"""
        self._is_locked_by_another = False

    @property
    def is_ours(self) -> bool:
        """Returns the last known answer, without a look at the state."""
        return self._renewed is not None

    async def hold(self) -> bool:
        """Takes the lease, or renews it when due; returns False while another holds it."""
        now = self._clock.monotonic()
        locked = None if self._lock is None else self._lock.take()
        self._is_locked_by_another = locked is False
        if locked is False:
            self._renewed = None
        elif self._renewed is None or (not locked and now - self._renewed >= RENEW_SECONDS):
            self._renewed = now if await in_thread(self._acquire) else None
        return self.is_ours

    def other_holder(self) -> str | None:
        """Returns another holder, if any. Call it in a thread, after `hold`."""
        # The holder of the lock writes its row only once, so the row may have expired.
        now = None if self._is_locked_by_another else self._clock.now()
        with self._database.read() as connection:
            return self.lease.other_holder(connection, now)

    def lose(self) -> None:
        """Gives up after another was seen to hold the lease."""
        self._renewed = None
        if self._lock is not None:
            self._lock.release()

    async def let_go(self) -> None:
        """Releases the lease; if that fails, the lease expires by itself."""
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
