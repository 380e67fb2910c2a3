"""Writes the tables of a new state in SQLite, as all migrations together make them.

Run `python scripts/new_state.py` after adding a migration; a test compares.
"""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from sagehen.state.migrate import upgrade
from sagehen.state.revision import NEW_STATE

_HEAD = "-- Made by scripts/new_state.py from the migrations.\n"


def statements(state: Path) -> str:
    """Returns SQL that makes a state like `state`, which has no rows but its revision."""
    with closing(sqlite3.connect(state)) as database:
        path = database.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' "
            "ORDER BY rowid"
        ).fetchall()
        ((revision,),) = database.execute("SELECT version_num FROM alembic_version")
    version = f"INSERT INTO alembic_version (version_num) VALUES ('{revision}')"
    return _HEAD + "".join(f"{statement};\n" for statement in [*(sql for (sql,) in path), version])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder, "state.db")
        upgrade(f"sqlite:///{state}")
        NEW_STATE.write_text(statements(state))


if __name__ == "__main__":
    main()
