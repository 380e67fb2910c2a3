"""Says whether a state in SQLite is what this version expects, without SQLAlchemy and Alembic.

At most starts it is, and to import those two takes longer than the rest of a start.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

__all__ = ["is_up_to_date", "newest_revision"]

_VERSIONS = Path(__file__).parent / "migrations" / "versions"


def newest_revision() -> str:
    """Migrations are numbered, and each file's name begins with its number."""
    return max(file.name.partition("_")[0] for file in _VERSIONS.glob("[0-9]*.py"))


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
