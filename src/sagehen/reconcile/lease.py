"""The right of one control at a time to change what a loop changes."""

from dataclasses import dataclass

from sqlalchemy import Connection

from sagehen.errors import SagehenError
from sagehen.store import leases

__all__ = ["Lease", "LeaseLost"]


class LeaseLost(SagehenError):
    """Another control reconciles now; nothing was written."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right, as this control holds it."""

    name: str
    holder: str
    ttl_seconds: float

    def acquire(self, connection: Connection, now: float) -> bool:
        return leases.acquire(connection, self.name, self.holder, now, self.ttl_seconds)

    def renew(self, connection: Connection, now: float) -> None:
        """In the transaction of a write, so that nothing is written without the right to it.

        Raises:
            LeaseLost: another has it.
        """
        if not leases.renew(connection, self.name, self.holder, now, self.ttl_seconds):
            raise LeaseLost(f"{self.holder} no longer holds the lease {self.name}.")

    def release(self, connection: Connection) -> None:
        leases.release(connection, self.name, self.holder)
