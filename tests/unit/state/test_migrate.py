"""Migrations: they make what the code expects, once, and never touch what they do not know."""

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import MetaData, text

from sagehen.base.errors import SettingError, StateError
from sagehen.frame import tags
from sagehen.state.database import Database
from sagehen.state.migrate import upgrade


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'state.db'}"


def revision(database: Database) -> str:
    with database.read() as connection:
        return str(connection.scalar(text("SELECT version_num FROM alembic_version")))


def test_migrations_make_the_tables_that_the_code_describes(
    database: Database, metadata: MetaData
) -> None:
    with database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_twice_is_once(url: str) -> None:
    upgrade(url)
    database = Database(url)
    with database.write() as connection:
        tags.put(connection, "arn", {"kept": "yes"})
    upgrade(url)
    with database.read() as connection:
        assert tags.get(connection, "arn") == {"kept": "yes"}
    database.close()


def test_processes_at_once(url: str) -> None:
    program = f"from sagehen.state.migrate import upgrade; upgrade({url!r})"
    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [process.wait(250) for process in running] == [0, 0, 0]


def test_a_newer_state_is_refused_and_left_alone(url: str) -> None:
    upgrade(url)
    database = Database(url)
    with database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StateError, match=r"newer version of Sagehen.*9999"):
        upgrade(url)
    assert revision(database) == "9999"
    database.close()


def test_a_migration_that_fails_leaves_nothing(url: str) -> None:
    database = Database(url)
    with database.write() as connection:
        connection.execute(text("CREATE TABLE tags (mine TEXT)"))
    with pytest.raises(Exception, match="tags already exists"):
        upgrade(url)
    with database.read() as connection:
        names = connection.scalars(text("SELECT name FROM sqlite_master")).all()
    assert list(names) == ["tags"]
    database.close()


@pytest.mark.parametrize("content", [None, b"this is no database" * 100])
def test_a_state_that_cannot_be_opened(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "state.db"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(StateError, match="cannot be opened"):
        upgrade(f"sqlite:///{path}")


@pytest.mark.parametrize("bad", ["nonsense", "mysql://host/db"])
def test_a_url_of_no_use(bad: str) -> None:
    with pytest.raises(SettingError, match="database_url"):
        upgrade(bad)
