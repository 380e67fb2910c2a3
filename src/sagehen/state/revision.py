"""Says whether a state in SQLite is what this version expects, and makes a new one, without
SQLAlchemy and Alembic.

At most starts that is all there is to do, and to import those two takes longer than the rest.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

__all__ = ["NEW_STATE", "is_up_to_date", "make_state", "newest_revision"]

_MIGRATIONS = Path(__file__).parent / "migrations"
NEW_STATE = _MIGRATIONS / "new_state.sql"
"""What all migrations make of nothing; `scripts/new_state.py` writes it."""


def newest_revision() -> str:
    """Migrations are numbered, and each file's name begins with its number."""
    return max(file.name.partition("_")[0] for file in (_MIGRATIONS / "versions").glob("[0-9]*.py"))


def is_up_to_date(state: Path) -> bool:
    """Whether no migration is due; False too where that cannot be told, or it cannot be written:
    `store.migrate` knows how to say so."""
    try:
        # Of mode rw: a state that is not there is not made.
        with closing(sqlite3.connect(f"file:{quote(str(state))}?mode=rw", uri=True)) as database:
            database.isolation_level = None
            database.execute("BEGIN IMMEDIATE")
            found = database.execute("SELECT version_num FROM alembic_version").fetchall()
            database.execute("ROLLBACK")
    except sqlite3.Error:
        return False
    return found == [(newest_revision(),)]


def make_state(state: Path) -> bool:
    """Make a state where there is none, whole or not at all.

    False: there is one, or none could be made; `store.migrate` knows how to say so.
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
