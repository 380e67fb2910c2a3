"""Who may read what is in a home."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagehen.base.errors import HomeError
from sagehen.base.home import Home, keeping_private, prepare_home


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_home_that_was_there_is_closed_to_others(short_path: Path) -> None:
    home = short_path / "home"
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    (home / "sagehen.toml").write_text("")
    assert mode(prepare_home(home).path) == 0o700
    home.chmod(0o750)
    assert mode(prepare_home(home).path) == 0o700, "it has been one"


def test_a_folder_with_other_things_keeps_its_mode_and_that_is_said(
    short_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = short_path / "home"
    home.mkdir()
    home.chmod(0o755)
    (home / "thesis.tex").write_text("")
    prepare_home(home)
    assert mode(home) == 0o755
    (told,) = caplog.messages
    assert f"chmod 700 {home}" in told
    for folder in home.iterdir():
        assert folder.name == "thesis.tex" or mode(folder) == 0o700


def test_folders_in_it_are_closed_too(short_path: Path) -> None:
    (short_path / "home/objects").mkdir(parents=True)
    (short_path / "home/objects").chmod(0o755)
    assert mode(prepare_home(short_path / "home").objects) == 0o700


def test_home_below_folders_that_cannot_sync(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As autofs and squashfs, which hold only the mount point of a home."""

    def fsync(descriptor: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr("os.fsync", fsync)
    assert prepare_home(short_path / "a/home").path.is_dir()


def test_a_folder_that_all_may_write_is_no_home(short_path: Path) -> None:
    shared = short_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(HomeError, match="all users may write"):
        prepare_home(shared)
    assert list(shared.iterdir()) == []
    assert mode(shared) == 0o1777


def test_what_is_made_while_private_is_nobody_elses_and_the_mask_comes_back(
    short_path: Path,
) -> None:
    with keeping_private() as before:
        (short_path / "made").touch()
    (short_path / "later").touch()
    assert before == 0o022
    assert (mode(short_path / "made"), mode(short_path / "later")) == (0o600, 0o644)


def test_isolated_code_cannot_read_what_others_computed_or_stored(tmp_path: Path) -> None:
    home = Home(tmp_path)
    private = {home.objects, home.offline_results, home.credentials, home.token, home.message_key}
    assert private < set(home.hidden)
    assert home.cluster in home.hidden
    assert home.cluster in home.node_id.parents
    assert {home.instances, home.artifacts}.isdisjoint(home.hidden)
