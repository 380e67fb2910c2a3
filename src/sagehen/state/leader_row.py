"""The SQL of leadership, in PostgreSQL: one row of the table of leases.

The row's times are of the database's clock. Writes of the leader lock the row with FOR KEY SHARE,
for which neither other writes nor renewals wait; a take-over locks it FOR UPDATE, and so waits for
the writes.
"""

from typing import NamedTuple

from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from sagehen.state.compatibility import check_revision

__all__ = [
    "Look",
    "check_epoch",
    "end_sessions",
    "is_lock_timeout",
    "look_at",
    "release",
    "renew",
    "take",
]

_NAME = "leader"
_NOW = "extract(epoch FROM clock_timestamp())"
_COMMITS = "CAST(pg_current_snapshot() AS text)"
_OLDEST = "(SELECT oldest_revision FROM compatibility)"

# Without waiting for the disk: a renewal that a crash of the database loses is only too short.
_RENEW = text(
    f"""
    UPDATE leases SET expires_at = {_NOW} + :ttl
    WHERE name = '{_NAME}' AND epoch = :epoch AND session = :session
    RETURNING
        {_COMMITS} AS commits, {_OLDEST} AS oldest, set_config('synchronous_commit', 'off', true)
    """
)
_LOOK = text(
    f"""
    SELECT holder, epoch, session, expires_at - {_NOW} AS seconds, {_COMMITS} AS commits,
        {_OLDEST} AS oldest
    FROM leases WHERE name = '{_NAME}'
    """
)
_MAKE = text(
    f"""
    INSERT INTO leases (name, holder, expires_at, epoch, session) VALUES ('{_NAME}', '', 0, 0, '')
    ON CONFLICT DO NOTHING
    """
)
_WAIT = text("SELECT set_config('lock_timeout', :wait, true)")
_LOCK = text(f"SELECT epoch FROM leases WHERE name = '{_NAME}' FOR UPDATE")
_TAKE = text(
    f"""
    UPDATE leases
    SET holder = :holder, session = :session, epoch = epoch + 1, expires_at = {_NOW} + :ttl
    WHERE name = '{_NAME}' AND (expires_at <= {_NOW} OR holder = :heir)
    RETURNING epoch
    """
)
_CHECK = text(
    f"""
    SELECT 1 FROM leases WHERE name = '{_NAME}' AND epoch = :epoch AND session = :session
    FOR KEY SHARE
    """
)
# The epoch stays: it must only grow.
_RELEASE = text(
    f"""
    UPDATE leases SET holder = '', session = '', expires_at = 0
    WHERE name = '{_NAME}' AND epoch = :epoch AND session = :session
    """
)
_END_SESSIONS = text(
    """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = :session AND pid <> pg_backend_pid()
    """
)

_LOCK_NOT_AVAILABLE = "55P03"


class Look(NamedTuple):
    """The row as somebody who does not lead sees it."""

    holder: str
    """empty: nobody"""
    epoch: int
    session: str
    """the name of the holder's sessions"""
    seconds: float
    """until it expires; not positive where it has"""
    commits: int


def renew(connection: Connection, epoch: int, session: str, ttl_seconds: float) -> int | None:
    """Extends the lease, even after it expired; None if another has taken it.

    Returns how many transactions have ended before, by all connections to the server. Raises
    StateError if this version must not use the state any more.
    """
    parameters = {"epoch": epoch, "session": session, "ttl": ttl_seconds}
    row = connection.execute(_RENEW, parameters).first()
    if row is None:
        return None
    check_revision(row.oldest)
    return _ended(row.commits)


def look_at(connection: Connection) -> Look | None:
    """Raises StateError if this version must not use the state any more."""
    row = connection.execute(_LOOK).first()
    if row is None:
        return None
    check_revision(row.oldest)
    seconds, commits = float(row.seconds), _ended(row.commits)
    return Look(row.holder, row.epoch, row.session, seconds, commits)


def take(
    connection: Connection,
    holder: str,
    session: str,
    ttl_seconds: float,
    *,
    is_heir: bool,
    wait_seconds: float,
) -> int | None:
    """Takes an expired lease and returns its new epoch; None while another holds it.

    Args:
        is_heir: `holder` may take its own lease at once, as an earlier process of it has ended.
        wait_seconds: how long to wait for transactions of the last leader.

    Raises OperationalError if those took longer: see `is_lock_timeout`.
    """
    connection.execute(_MAKE)
    connection.execute(_WAIT, {"wait": f"{int(wait_seconds * 1000)}ms"})
    connection.execute(_LOCK)
    heir = holder if is_heir else None
    values = {"holder": holder, "session": session, "ttl": ttl_seconds, "heir": heir}
    epoch = connection.scalar(_TAKE, values)
    return None if epoch is None else int(epoch)


def check_epoch(connection: Connection, epoch: int, session: str) -> bool:
    """Whether the epoch is in force, and stays so until the transaction ends.

    For PostgreSQL a lock is a write: call it only where something else is written.
    """
    return connection.scalar(_CHECK, {"epoch": epoch, "session": session}) is not None


def release(connection: Connection, epoch: int, session: str) -> None:
    connection.execute(_RELEASE, {"epoch": epoch, "session": session})


def end_sessions(connection: Connection, session: str) -> int:
    """Ends a lost leader's sessions, whose open transactions would keep rows locked."""
    return len(connection.execute(_END_SESSIONS, {"session": session}).all()) if session else 0


def is_lock_timeout(error: OperationalError) -> bool:
    return getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE


def _ended(snapshot: str) -> int:
    """Counts the transactions with writes that have ended, of `xmin:xmax:running,running…`."""
    _, following, running = snapshot.split(":")
    return int(following) - (running.count(",") + 1 if running else 0)
