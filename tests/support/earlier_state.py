"""States as earlier versions of Sagehen left them."""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from alembic import command
from alembic.config import Config

from sagehen.state import migrate
from sagehen.state.database import Database

__all__ = ["make_earlier", "upgrade_to"]


def upgrade_to(revision: str, database: Database) -> None:
    with database.write() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(migrate._MIGRATIONS).replace("%", "%%"))
        command.upgrade(config, revision)


def make_earlier(file: Path, revision: str) -> None:
    """Removes from a state in SQLite what came after `revision`: tables and columns."""
    earlier = _columns_at(revision)
    with closing(sqlite3.connect(file)) as state:
        for table, columns in _columns(state).items():
            if table not in earlier:
                state.execute(f'DROP TABLE "{table}"')
                continue
            for column in columns - earlier[table]:
                state.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
        state.execute("UPDATE alembic_version SET version_num = ?", [revision])
        state.commit()


def _columns_at(revision: str) -> dict[str, set[str]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.db"
        database = Database(f"sqlite:///{file}")
        upgrade_to(revision, database)
        database.close()
        with closing(sqlite3.connect(file)) as state:
            return _columns(state)


def _columns(state: sqlite3.Connection) -> dict[str, set[str]]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    tables = [name for (name,) in state.execute(query).fetchall()]
    return {
        table: {name for (name,) in state.execute("SELECT name FROM pragma_table_info(?)", [table])}
        for table in tables
    }
