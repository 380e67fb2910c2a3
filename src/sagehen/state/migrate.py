"""Migrates the state's tables to this version of Sagehen."""

import logging
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from sagehen.base.errors import StateError
from sagehen.state.compatibility import is_supported
from sagehen.state.database import Database

__all__ = ["upgrade"]

log = logging.getLogger(__name__)
_MIGRATIONS = Path(__file__).parent / "migrations"
_POSTGRES_LOCK = 0x5A6E_4E11
"""arbitrary, but must never change"""


def upgrade(url: str) -> None:
    """Runs the missing migrations, all or none; concurrent calls wait for the first.

    Raises:
        StateError: the database cannot be opened, or a newer Sagehen has written it.
    """
    database = Database(url)
    try:
        _check_reachable(database)
        with database.write() as connection:
            _lock(connection)
            _upgrade(connection)
    finally:
        database.close()


def _check_reachable(database: Database) -> None:
    try:
        with database.engine.connect():
            pass
    except DBAPIError as error:
        where = database.engine.url.render_as_string(hide_password=True)
        raise StateError(f"The state at {where} cannot be opened: {error.orig}") from error


def _lock(connection: Connection) -> None:
    # SQLite's write transaction is exclusive anyway.
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _POSTGRES_LOCK})


def _upgrade(connection: Connection) -> None:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision == scripts.get_current_head():
        return
    if revision is not None and revision not in {
        script.revision for script in scripts.walk_revisions()
    }:
        if is_supported(connection):
            log.warning(
                "A newer version of Sagehen has migrated the state, which this one can still use.",
                extra={"action": "migrate", "revision": revision},
            )
            return
        raise StateError(
            f"The state was written by a newer version of Sagehen (its revision is {revision}, the "
            f"newest known here is {scripts.get_current_head()}). Install that version again, or "
            "start with another home."
        )
    command.upgrade(config, "head")
    log.info(
        "The state was migrated.",
        extra={"action": "migrate", "revision": scripts.get_current_head()},
    )
