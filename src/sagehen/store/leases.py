"""Leases: who may run a loop now. One that is not renewed in time is anyone's."""

from dataclasses import dataclass

from sqlalchemy import Column, Connection, Double, String, Table, or_, select, update

from sagehen.errors import SagehenError
from sagehen.store.rows import delete_where, inserts, upsert
from sagehen.store.tables import METADATA

__all__ = ["LEASES", "Lease", "LeaseLost", "acquire", "holder", "release", "renew"]

LEASES = Table(
    "leases",
    METADATA,
    Column("name", String(128), primary_key=True),
    Column("holder", String(128), nullable=False),
    Column("expires_at", Double, nullable=False),
)


def acquire(connection: Connection, name: str, holder: str, now: float, ttl_seconds: float) -> bool:
    """Take the lease until `now + ttl_seconds`; False while another holds it.

    Who holds it already keeps it for longer.
    """
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
    """Keep a lease for `ttl_seconds` from `now`; False where it is no longer the holder's.

    It may have run out, as long as nobody else took it.
    """
    mine = (LEASES.c.name == name) & (LEASES.c.holder == holder)
    statement = update(LEASES).where(mine).values(expires_at=now + ttl_seconds)
    return connection.execute(statement).rowcount == 1


def holder(connection: Connection, name: str, now: float | None) -> str | None:
    """Who holds the lease at `now`; None where it is anyone's.

    Without `now` it is whoever took it last, even if it has run out.
    """
    query = select(LEASES.c.holder).where(LEASES.c.name == name)
    if now is not None:
        query = query.where(LEASES.c.expires_at > now)
    found = connection.execute(query).scalar()
    return None if found is None else str(found)


def release(connection: Connection, name: str, holder: str) -> bool:
    """Give the lease back; False where it is no longer the holder's."""
    return delete_where(connection, LEASES, LEASES.c.name == name, LEASES.c.holder == holder)


class LeaseLost(SagehenError):
    """Another control does it now; nothing was written."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right of one control at a time to change what a loop changes."""

    name: str
    holder: str
    ttl_seconds: float

    def acquire(self, connection: Connection, now: float) -> bool:
        return acquire(connection, self.name, self.holder, now, self.ttl_seconds)

    def renew(self, connection: Connection, now: float) -> None:
        """In the transaction of a write, so that nothing is written without the right to it.

        Raises:
            LeaseLost: another has it.
        """
        if not renew(connection, self.name, self.holder, now, self.ttl_seconds):
            raise LeaseLost(f"{self.holder} no longer holds the lease {self.name}.")

    def other_holder(self, connection: Connection, now: float | None) -> str | None:
        """Who holds it at `now`, where that is another; see `holder`."""
        found = holder(connection, self.name, now)
        return None if found == self.holder else found

    def release(self, connection: Connection) -> None:
        release(connection, self.name, self.holder)
