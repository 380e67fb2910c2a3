"""Whether a migration is due, read without the libraries that would run it."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

import sagehen.state
from sagehen.state.revision import is_up_to_date, make_state, newest_revision


@pytest.fixture
def state(empty_state: Path, tmp_path: Path) -> Path:
    path = tmp_path / "what? 50%.db"
    path.write_bytes(empty_state.read_bytes())
    return path


def test_the_newest_is_alembics_head() -> None:
    migrations = Path(sagehen.state.__file__).parent / "migrations"
    assert newest_revision() == ScriptDirectory(str(migrations)).get_current_head()


def test_what_was_migrated_is_up_to_date(state: Path) -> None:
    assert is_up_to_date(state)


@pytest.mark.parametrize("revision", ["0001", "9999"])
def test_an_older_or_newer_one_is_not(state: Path, revision: str) -> None:
    with closing(sqlite3.connect(state)) as database:
        database.execute("UPDATE alembic_version SET version_num = ?", [revision])
        database.commit()
    assert not is_up_to_date(state)


@pytest.mark.parametrize("content", [b"", b"this is no database" * 100])
def test_nor_is_what_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(content)
    assert not is_up_to_date(path)
    assert path.read_bytes() == content


def test_nor_is_what_is_not_there_and_it_is_not_made(tmp_path: Path) -> None:
    assert not is_up_to_date(tmp_path / "state.db")
    assert list(tmp_path.iterdir()) == []


def shape(state: Path) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(state)) as database:
        made = database.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid"
        )
        return [*made, *database.execute("SELECT version_num FROM alembic_version")]


def test_a_new_state_is_what_all_migrations_make(state: Path, tmp_path: Path) -> None:
    new = tmp_path / "new? 50%.db"
    assert make_state(new)
    assert shape(new) == shape(state), "run scripts/new_state.py"
    assert is_up_to_date(new)
    assert not make_state(new), "it is made once"


def test_no_state_is_made_over_another_or_where_none_can_be(state: Path, tmp_path: Path) -> None:
    before = state.read_bytes()
    assert not make_state(state)
    assert state.read_bytes() == before
    assert not make_state(tmp_path / "no folder" / "state.db")


def test_it_takes_none_of_the_libraries_of_a_migration() -> None:
    assert not loaded_with("sagehen.app.commands.serving", "sagehen.app.cli") & {
        "alembic",
        "sqlalchemy",
    }


def test_a_command_waits_for_nothing_that_only_a_server_needs() -> None:
    assert not loaded_with("sagehen.app.cli") & {"uvloop", "msgspec", "sagehen.app.server"}


def loaded_with(*modules: str) -> set[str]:
    program = f"import json, sys, {', '.join(modules)}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    return set(json.loads(done.stdout))
