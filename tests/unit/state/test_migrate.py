"""Migrations: they make what the code expects, once, and never touch what they do not know."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import MetaData, text

import sagehen.state.migrate
from sagehen.base.errors import SettingError, StateError
from sagehen.frame import tags
from sagehen.state.compatibility import require_revision
from sagehen.state.database import Database
from sagehen.state.migrate import upgrade
from sagehen.state.revision import newest_revision

MIGRATIONS = Path(sagehen.state.migrate.__file__).parent / "migrations" / "versions"
CONTRACTING = {
    f"{owner}.{name}"
    for owner in ("op", "batch", "batch_op")
    for name in ("alter_column", "drop_column", "drop_constraint", "drop_table", "rename_table")
}


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


def test_a_newer_state_is_used_while_nothing_that_this_code_needs_is_gone(
    postgres: Database,
) -> None:
    url = postgres.engine.url.render_as_string(hide_password=False)
    before = revision(postgres)
    try:
        with postgres.write() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
            require_revision(connection, newest_revision())
        upgrade(url)
        assert revision(postgres) == "9999"
        with postgres.write() as connection:
            require_revision(connection, "9998")
        with pytest.raises(StateError, match=r"newer version of Sagehen.*9999"):
            upgrade(url)
    finally:
        with postgres.write() as connection:
            connection.execute(text("DELETE FROM compatibility"))
            connection.execute(
                text("UPDATE alembic_version SET version_num = :before"), {"before": before}
            )


def test_new_migrations_only_add() -> None:
    """Controls of the version before go on meanwhile: see `state.compatibility`."""
    for file in sorted(MIGRATIONS.glob("[0-9]*.py")):
        text_of_file = file.read_text()
        if file.name[:4] < "0022" or "require_revision(" in text_of_file:
            continue
        for call in ast.walk(ast.parse(text_of_file)):
            if not isinstance(call, ast.Call):
                continue
            name = ast.unparse(call.func)
            assert name not in CONTRACTING, f"{file.name} calls {name}"
            if name.endswith("add_column"):
                described = ast.unparse(call)
                is_open = "nullable=True" in described or "server_default=" in described
                assert is_open, f"{file.name}: {described} must be nullable or have a default"


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
