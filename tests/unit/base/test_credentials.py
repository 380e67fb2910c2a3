"""The keys and the token of a home."""

from pathlib import Path

import pytest

from sagehen.base.credentials import load_credentials, load_token, make_credentials, make_token
from sagehen.base.errors import HomeError


def test_keys_are_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    made = make_credentials(path)
    assert make_credentials(path) == made == load_credentials(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert made.access_key.startswith("AKSH")
    assert made.secret_key not in repr(made)


def test_a_token_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "token"
    make_token(path)
    token = load_token(path)
    make_token(path)
    assert load_token(path) == token
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_draft_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "token.new").write_text("half")
    make_token(tmp_path / "token")
    assert load_token(tmp_path / "token") != "half"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"access_key": "a"}'])
def test_damaged_keys_are_an_error_with_advice(tmp_path: Path, content: str) -> None:
    path = tmp_path / "credentials.json"
    path.write_text(content)
    with pytest.raises(HomeError, match="remove it"):
        load_credentials(path)


def test_missing_keys_mean_that_no_server_has_run(tmp_path: Path) -> None:
    with pytest.raises(HomeError, match="no server has run"):
        load_credentials(tmp_path / "credentials.json")


def test_an_empty_or_missing_token_is_an_error_with_advice(tmp_path: Path) -> None:
    with pytest.raises(HomeError, match="cannot be read"):
        load_token(tmp_path / "token")
    (tmp_path / "token").write_text("\n")
    with pytest.raises(HomeError, match="is empty"):
        load_token(tmp_path / "token")
