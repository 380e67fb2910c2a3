"""Checks and creates SQLite states without SQLAlchemy and Alembic, whose import takes longer than
the rest of a start."""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

__all__ = ["NEW_STATE", "is_up_to_date", "make_state", "newest_revision"]

_MIGRATIONS = Path(__file__).parent / "migrations"
NEW_STATE = _MIGRATIONS / "new_state.sql"
"""all migrations applied; written by `scripts/new_state.py`"""


def newest_revision() -> str:
    return max(file.name.partition("_")[0] for file in (_MIGRATIONS / "versions").glob("[0-9]*.py"))


def is_up_to_date(state: Path) -> bool:
    """Returns False also where the state is unusable: `state.migrate` reports why."""
    try:
        # Mode rw does not create a missing state.
        with closing(sqlite3.connect(f"file:{quote(str(state))}?mode=rw", uri=True)) as database:
            database.isolation_level = None
            database.execute("BEGIN IMMEDIATE")
            revisions = database.execute("SELECT version_num FROM alembic_version").fetchall()
            database.execute("ROLLBACK")
    except sqlite3.Error:
        return False
    return revisions == [(newest_revision(),)]


def make_state(state: Path) -> bool:
    """Creates a state, all or nothing. Returns False if one exists or cannot be made:
    `state.migrate` reports why."""
    if state.exists():
        return False
    try:
        with closing(sqlite3.connect(state)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(f"BEGIN IMMEDIATE; {NEW_STATE.read_text()} COMMIT")
    except sqlite3.Error:
        return False
    return True
