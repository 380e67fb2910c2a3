"""Tells whether an SQLite state is up to date and makes a new one, without SQLAlchemy and Alembic.

Most starts need no more, and importing those two takes longer than the rest of a start.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

__all__ = ["NEW_STATE", "is_up_to_date", "make_state", "newest_revision"]

_MIGRATIONS = Path(__file__).parent / "migrations"
NEW_STATE = _MIGRATIONS / "new_state.sql"
"""the result of all migrations; `scripts/new_state.py` writes it"""


def newest_revision() -> str:
    """Returns the highest number that begins a migration's file name."""
    return max(file.name.partition("_")[0] for file in (_MIGRATIONS / "versions").glob("[0-9]*.py"))


def is_up_to_date(state: Path) -> bool:
    """Returns whether no migration is due. False also where the state cannot be read or written:
    `state.migrate` then reports why."""
    try:
        # Mode rw does not create a missing state.
        with closing(sqlite3.connect(f"file:{quote(str(state))}?mode=rw", uri=True)) as database:
            database.isolation_level = None
            database.execute("BEGIN IMMEDIATE")
            found = database.execute("SELECT version_num FROM alembic_version").fetchall()
            database.execute("ROLLBACK")
    except sqlite3.Error:
        return False
    return found == [(newest_revision(),)]


def make_state(state: Path) -> bool:
    """Creates a missing state, all or nothing.

    Returns False if a state exists or none could be made; `state.migrate` then reports why.
    """
    if state.exists():
        return False
    try:
        with closing(sqlite3.connect(state)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(f"BEGIN IMMEDIATE; {NEW_STATE.read_text()} COMMIT")
    except sqlite3.Error:
        return False
    return True
