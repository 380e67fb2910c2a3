"""Which files of a container an agent that is not root cannot read or remove."""

import os
from pathlib import Path

import pytest

from sagehen.agent.launchers.docker.left_files import closed_paths


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Modes count as for a user who owns nothing; the tests may be root, who may do all."""

    def access(path: Path, rights: int) -> bool:
        return os.stat(path).st_mode & rights == rights

    monkeypatch.setattr("os.access", access)
    (tmp_path / "open" / "below").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open" / "below").chmod(0o755)
    (tmp_path / "open" / "below" / "hidden").touch(0o600)
    for name, mode in (("readable", 0o644), ("private", 0o640)):
        (tmp_path / "open" / name).touch()
        (tmp_path / "open" / name).chmod(mode)
    (tmp_path / "open" / "link").symlink_to(tmp_path / "open" / "private")
    tmp_path.chmod(0o777)
    return tmp_path


def test_closed_folders_hide_what_is_in_them(folder: Path) -> None:
    names = {"open/below", "open/private"}
    assert set(closed_paths(folder)) == {folder / name for name in names}
    (folder / "open" / "below").chmod(0o777)
    names = {"open/below/hidden", "open/private"}
    assert set(closed_paths(folder)) == {folder / name for name in names}


def test_a_closed_top_is_all_there_is(folder: Path) -> None:
    folder.chmod(0o700)
    assert list(closed_paths(folder)) == [folder]
