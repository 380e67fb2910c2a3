"""Whether anybody has committed, and whether a loop may rest for that reason."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sagehen.state import leases
from sagehen.state.commits import LONGEST_IDLE_SECONDS, Commits, IdleCheck
from sagehen.state.database import Database
from support.clock import HandClock
from support.state import copied_state


@pytest.fixture
def database(empty_state: Path, tmp_path: Path) -> Iterator[Database]:
    with copied_state(empty_state, tmp_path / "state.db") as database:
        yield database


def commit(database: Database, name: str = "some") -> None:
    with database.write() as connection:
        leases.acquire(connection, name, "one", 0, 1)


def undo(database: Database) -> None:
    with database.write() as connection:
        leases.acquire(connection, "undone", "one", 0, 1)
        raise KeyError


def test_every_commit_is_seen_and_nothing_else(database: Database) -> None:
    first = database.commits.version()
    with database.read() as connection:
        leases.LEASES.select().compile(connection)
    with database.write():
        pass  # Nothing is written, nothing committed.
    with pytest.raises(KeyError):
        undo(database)
    assert database.commits.version() == first
    commit(database)
    assert database.commits.version() != first


def test_commits_of_others_are_seen(database: Database) -> None:
    other = Database(str(database.engine.url))
    first = database.commits.version()
    commit(other)
    other.close()
    assert database.commits.version() != first


@pytest.mark.parametrize("file", [None, Path("/nowhere/state.db")])
def test_what_cannot_be_told_is_none(file: Path | None) -> None:
    assert Commits(file).version() is None


def test_a_loop_that_had_nothing_to_do_is_idle_until_a_commit(database: Database) -> None:
    check = IdleCheck(database.commits, HandClock())
    assert not check.is_idle
    check.begin()
    check.end()
    assert check.is_idle
    commit(database)
    assert not check.is_idle
    check.begin()
    assert not check.is_idle  # It has something to do: it did not say otherwise.


def test_what_is_committed_during_a_turn_needs_another(database: Database) -> None:
    check = IdleCheck(database.commits, HandClock())
    check.begin()
    commit(database)
    check.end()
    assert not check.is_idle


def test_nobody_is_idle_for_ever(database: Database) -> None:
    clock = HandClock()
    check = IdleCheck(database.commits, clock)
    check.begin()
    check.end()
    clock.seconds += LONGEST_IDLE_SECONDS - 1
    assert check.is_idle
    clock.seconds += 1
    assert not check.is_idle


def test_without_sight_of_commits_nobody_is_idle() -> None:
    check = IdleCheck(Commits(None), HandClock())
    check.begin()
    check.end()
    assert not check.is_idle


def test_a_number_of_a_connection_made_anew_is_another(database: Database) -> None:
    """SQLite counts for each connection, from the same number on."""
    first = database.commits.version()
    file = Path(str(database.engine.url.database))
    away = file.with_name("away.db")
    database.commits.close()
    file.rename(away)
    assert database.commits.version() is None
    away.rename(file)
    assert database.commits.version() not in (first, None)
