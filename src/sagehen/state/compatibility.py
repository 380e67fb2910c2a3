"""Which versions of Sagehen may use one state at the same time.

Nodes are upgraded one after another, so controls of two versions share the state for a while. The
rule is *expand and contract*: a migration only adds what the version before can ignore (tables,
indexes, columns with a default or NULL). A migration that removes or changes something comes in a
later release than the last code that uses it, and calls `require_revision`.
"""

from sqlalchemy import Column, Connection, Integer, String, Table, inspect, select

from sagehen.base.errors import StateError
from sagehen.state.revision import newest_revision
from sagehen.state.rows import METADATA, upsert

__all__ = ["COMPATIBILITY", "check_revision", "is_supported", "require_revision"]

_FIRST = "0022"
"""the first revision whose code knows this rule"""

COMPATIBILITY = Table(
    "compatibility",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("oldest_revision", String(32), nullable=False),
)
"""at most one row"""


def require_revision(connection: Connection, revision: str) -> None:
    """Call it in a migration that contracts: code whose newest migration is older than `revision`
    must not use the state any more."""
    statement = upsert(connection, COMPATIBILITY).values(id=1, oldest_revision=revision)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=[COMPATIBILITY.c.id], set_={"oldest_revision": revision}
        )
    )


def is_supported(connection: Connection) -> bool:
    """Whether this code may use a state that a newer one has migrated: only servers that share a
    state in PostgreSQL are upgraded one after another."""
    if connection.dialect.name != "postgresql" or not inspect(connection).has_table(
        "compatibility"
    ):
        return False
    return _oldest(connection) <= newest_revision()


def check_revision(oldest: str | None) -> None:
    """Raises StateError if a newer Sagehen has made the state unusable for this one meanwhile.

    `oldest` is what the table has.
    """
    if oldest is not None and oldest > newest_revision():
        raise StateError(
            "A newer version of Sagehen has changed the state, and this one cannot use it any more "
            f"(it needs revision {oldest}, the newest known here is {newest_revision()}). Upgrade "
            "this server, too."
        )


def _oldest(connection: Connection) -> str:
    return str(connection.scalar(select(COMPATIBILITY.c.oldest_revision)) or _FIRST)
