"""Secrets that homes on one state have in common."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import delete

from sagehen.base.credentials import load_credentials, make_credentials
from sagehen.base.errors import HomeError
from sagehen.state.database import Database
from sagehen.state.shared_secrets import SHARED_SECRETS, share_secret


@pytest.fixture
def shared(postgres: Database) -> Database:
    with postgres.write() as connection:
        connection.execute(delete(SHARED_SECRETS))
    return postgres


def writing(secret: bytes) -> Callable[[Path], object]:
    return lambda path: path.exists() or path.write_bytes(secret)


def test_a_new_home_adopts_the_keys_of_the_first(shared: Database, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for home in (one, two, one):
        home.mkdir(exist_ok=True)
        assert not share_secret(shared, "keys", home / "c.json", make_credentials)
    assert load_credentials(one / "c.json") == load_credentials(two / "c.json")
    assert (two / "c.json").stat().st_mode & 0o777 == 0o600


def test_a_home_with_keys_of_its_own_keeps_them_aside(
    shared: Database, tmp_path: Path, caplog
) -> None:
    theirs, own = tmp_path / "theirs", tmp_path / "own"
    own.write_bytes(b"own")
    share_secret(shared, "token", theirs, writing(b"theirs"))
    assert share_secret(shared, "token", own, writing(b"never"))
    assert (own.read_bytes(), (tmp_path / "own.replaced").read_bytes()) == (b"theirs", b"own")
    assert "has another token" in caplog.text
    assert not share_secret(shared, "token", own, writing(b"never"))


def test_a_new_home_that_is_second_by_a_moment_replaces_nothing(
    shared: Database, tmp_path: Path
) -> None:
    theirs, own = tmp_path / "theirs", tmp_path / "own"

    def make(path: Path) -> None:
        share_secret(shared, "token", theirs, writing(b"theirs"))
        path.write_bytes(b"own")

    assert not share_secret(shared, "token", own, make)
    assert own.read_bytes() == b"theirs"
    assert not (tmp_path / "own.replaced").exists()


def test_the_keys_of_a_home_are_those_of_a_state_that_has_none(
    shared: Database, tmp_path: Path
) -> None:
    """As after an upgrade: the clients of the first home that starts need no new keys."""
    own = tmp_path / "own"
    own.write_bytes(b"own")
    assert not share_secret(shared, "token", own, writing(b"never"))
    assert own.read_bytes() == b"own"
    share_secret(shared, "token", tmp_path / "new", writing(b"never"))
    assert (tmp_path / "new").read_bytes() == b"own"


def test_a_state_in_sqlite_shares_nothing(database: Database, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert not share_secret(database, "token", tmp_path / name, writing(name.encode()))
    assert (tmp_path / "two").read_bytes() == b"two"


def test_an_unreadable_file_is_an_error_of_the_home(shared: Database, tmp_path: Path) -> None:
    share_secret(shared, "token", tmp_path / "one", writing(b"secret"))
    (tmp_path / "two").mkdir()
    with pytest.raises(HomeError):
        share_secret(shared, "token", tmp_path / "two", writing(b"never"))
