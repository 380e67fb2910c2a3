"""A start looks for damage in the state, but not for ever."""

import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sagehen.base.errors import SettingError, StateError
from sagehen.base.settings import Settings
from sagehen.state import opening
from sagehen.state.opening import (
    adopt_state,
    check_whole,
    make_private,
    open_state,
    sqlite_file,
)
from support.state import settings_of


@pytest.fixture
def state(empty_state: Path, tmp_path: Path) -> Path:
    path = tmp_path / "what? 50%.db"
    path.write_bytes(empty_state.read_bytes())
    return path


def test_damage_is_found(state: Path) -> None:
    check_whole(state)
    with state.open("r+b") as file:
        file.seek(4096 * 2)
        file.write(os.urandom(4096 * 4))
    with pytest.raises(StateError, match="sagehen restore"):
        check_whole(state)


def test_a_large_state_is_looked_at_for_so_long(
    state: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(opening, "_STEPS_BETWEEN_LOOKS", 1)
    with caplog.at_level(logging.INFO):
        check_whole(state, seconds=0)
    assert "only its first part was checked" in caplog.text


def test_looking_does_not_write_a_log_into_the_state(state: Path) -> None:
    with closing(sqlite3.connect(state)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO buckets (name, created_at) VALUES ('b', 0)")
        writer.commit()
        before, log = state.read_bytes(), Path(f"{state}-wal").read_bytes()
    state.write_bytes(before)
    Path(f"{state}-wal").write_bytes(log)
    check_whole(state)
    assert state.read_bytes() == before
    assert Path(f"{state}-wal").read_bytes() == log


def test_files_beside_the_state_are_private_too(state: Path) -> None:
    paths = [state, Path(f"{state}-wal"), Path(f"{state}-shm")]
    for path in paths:
        path.touch()
        path.chmod(0o644)
    make_private(state)
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o600] * 3


@pytest.mark.parametrize("left", [None, b""])
@pytest.mark.parametrize("start", [open_state, adopt_state])
def test_the_log_of_a_state_that_is_missing_is_not_deleted(
    state: Path, tmp_path: Path, left: bytes | None, start: Callable[[Settings], object]
) -> None:
    state = state.rename(tmp_path / "plain.db")  # which stands in a URL as it is
    log = Path(f"{state}-wal")
    with closing(sqlite3.connect(state)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO buckets (name, created_at) VALUES ('b', 0)")
        writer.commit()
        kept = log.read_bytes()
    state.unlink()
    if left is not None:
        state.write_bytes(left)
    log.write_bytes(kept)
    link = tmp_path / "link.db"
    link.symlink_to(state)
    for path in (state, link):
        with pytest.raises(StateError, match="its log"):
            start(settings_of(tmp_path / "home", database_url=f"sqlite:///{path}"))
    assert log.read_bytes() == kept


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?uri=true"])
def test_a_state_that_is_no_file_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingError, match="names no file"):
        sqlite_file(settings_of(tmp_path, database_url=url))
