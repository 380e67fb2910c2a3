"""Leases: the holder may run a loop, until the lease is released or expires.

In SQLite each loop has a lease of its own; in PostgreSQL one leader runs them all
(`state/leadership.py`).
"""

import contextlib
import fcntl
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sqlalchemy import BigInteger, Column, Connection, Double, String, Table, or_, select, update
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
    "LoopLease",
    "WriteCheck",
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
    Column("holder", String(255), nullable=False),
    Column("expires_at", Double, nullable=False),
    # No default: controls of earlier versions must not take leases.
    Column("epoch", BigInteger, nullable=False),
    # The name of the holder's sessions in PostgreSQL.
    Column("session", String(63), nullable=False),
)

_ONLY_EPOCH = 1


def acquire(connection: Connection, name: str, holder: str, now: float, ttl_seconds: float) -> bool:
    """Takes or extends the lease; returns False while another holds it."""
    statement = upsert(connection, LEASES).values(
        name=name, holder=holder, expires_at=now + ttl_seconds, epoch=_ONLY_EPOCH, session=""
    )
    statement = statement.on_conflict_do_update(
        index_elements=[LEASES.c.name],
        set_={"holder": holder, "expires_at": now + ttl_seconds},
        where=or_(LEASES.c.expires_at <= now, LEASES.c.holder == holder),
    )
    return inserts(connection, statement)


def renew(connection: Connection, name: str, holder: str, now: float, ttl_seconds: float) -> bool:
    """Extends the lease, even after it expired; returns False if another has taken it."""
    mine = (LEASES.c.name == name) & (LEASES.c.holder == holder)
    statement = update(LEASES).where(mine).values(expires_at=now + ttl_seconds)
    return connection.execute(statement).rowcount == 1


def holder(connection: Connection, name: str, now: float | None) -> str | None:
    """Returns the holder at `now`; without `now`, the last holder."""
    query = select(LEASES.c.holder).where(LEASES.c.name == name)
    if now is not None:
        query = query.where(LEASES.c.expires_at > now)
    name_of_holder = connection.execute(query).scalar()
    return None if name_of_holder is None else str(name_of_holder)


def release(connection: Connection, name: str, holder: str) -> bool:
    return delete_where(connection, LEASES, LEASES.c.name == name, LEASES.c.holder == holder)


class LeaseLost(SagehenError):
    """Another control holds the lease; nothing was written."""


class WriteCheck(Protocol):
    """The check in the transaction of each write, so that only the lease's holder writes."""

    def check(self, connection: Connection, now: float) -> None:
        """Raises LeaseLost."""


class LoopLease(Protocol):
    """The right to run a loop, as the loop sees it."""

    @property
    def name(self) -> str: ...

    @property
    def is_ours(self) -> bool:
        """As far as this process knows."""

    @property
    def term(self) -> int:
        """Differs after each time that the lease was taken."""

    @property
    def lease(self) -> WriteCheck: ...

    async def hold(self) -> bool:
        """Takes or renews the lease when due; returns False while another holds it."""

    def check(self, connection: Connection) -> None:
        """Like `lease.check`, without a write. Raises LeaseLost."""

    def other_holder(self) -> str | None:
        """Call it in a thread, after `hold`."""

    def lose(self) -> None: ...

    async def let_go(self) -> None:
        """Releases the lease; if that fails, it expires."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right to change what a loop changes."""

    name: str
    holder: str
    ttl_seconds: float

    def acquire(self, connection: Connection, now: float) -> bool:
        return acquire(connection, self.name, self.holder, now, self.ttl_seconds)

    def check(self, connection: Connection, now: float) -> None:
        """Renews the lease. Raises LeaseLost."""
        if not renew(connection, self.name, self.holder, now, self.ttl_seconds):
            raise LeaseLost(f"{self.holder} no longer holds the lease {self.name}.")

    def other_holder(self, connection: Connection, now: float | None) -> str | None:
        current = holder(connection, self.name, now)
        return None if current == self.holder else current

    def release(self, connection: Connection) -> None:
        release(connection, self.name, self.holder)


class LeaseLock:
    """A file lock, held until `release` or the end of the process.

    The kernel frees it at once, so no row needs renewals, each of which waits for the disk.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor: int | None = None
        self._warned = False

    @property
    def is_held(self) -> bool:
        return self._descriptor is not None

    def take(self) -> bool | None:
        """Returns None where the file cannot be locked."""
        if self._descriptor is not None:
            return True
        try:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._warn(error)
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            self._warn(error)
            return None
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """The file stays: waiting processes may have it open."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            extra = {"action": "lock_lease", "file": str(self._file), "reason": str(error)}
            log.warning("A lease cannot be locked and is renewed instead.", extra=extra)


LEASE_SECONDS = 5.0
RENEW_SECONDS = 1.5


class HeldLease:
    """A lease held by one control at a time; another takes over seconds after its death.

    Controls on one machine also hold a file lock (see `Database.lease_lock`). The row is then
    written once: nobody takes even an expired lease while the file is locked.
    """

    def __init__(self, database: Database, clock: Clock, name: str, holder: str) -> None:
        """`holder` names home and machine, not the process: a restarted control regains its lease
        at once."""
        self.lease = Lease(name=name, holder=holder, ttl_seconds=LEASE_SECONDS)
        self._database = database
        self._clock = clock
        file = database.lease_lock(name)
        self._lock = None if file is None else LeaseLock(file)
        self._renewed: float | None = None
        """seconds, monotonic; None while not ours"""
        self._is_locked_by_another = False
        self.term = 0

    @property
    def name(self) -> str:
        return self.lease.name

    @property
    def is_ours(self) -> bool:
        return self._renewed is not None

    async def hold(self) -> bool:
        now = self._clock.monotonic()
        locked = None if self._lock is None else self._lock.take()
        self._is_locked_by_another = locked is False
        if locked is False:
            self._renewed = None
        elif self._renewed is None or (not locked and now - self._renewed >= RENEW_SECONDS):
            is_new = self._renewed is None
            self._renewed = now if await in_thread(self._acquire) else None
            self.term += is_new and self.is_ours
        return self.is_ours

    def check(self, connection: Connection) -> None:
        if self._lock is None or not self._lock.is_held:
            self.lease.check(connection, self._clock.now())

    def other_holder(self) -> str | None:
        # The lock's holder does not renew its row.
        now = None if self._is_locked_by_another else self._clock.now()
        with self._database.read() as connection:
            return self.lease.other_holder(connection, now)

    def lose(self) -> None:
        self._renewed = None
        if self._lock is not None:
            self._lock.release()

    async def let_go(self) -> None:
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
