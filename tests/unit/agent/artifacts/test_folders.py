"""Folders of model data: copied or shared, and removed without following links."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from sagehen.agent.artifacts.folders import (
    MAX_COPIED_BYTES,
    error_text,
    give_folder,
    is_disk_full,
    remove_tree,
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "model").write_bytes(b"weights")
    return folder


def test_small_data_is_copied_and_replaces_what_was_there(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "ml" / "model"
    target.mkdir(parents=True)
    (target / "old").touch()
    give_folder(source, target, size_bytes=7)
    assert not target.is_symlink()
    assert os.listdir(target) == ["model"]


def test_files_of_large_data_are_shared_without_a_way_to_the_cache(
    source: Path, tmp_path: Path
) -> None:
    (source / "latest").symlink_to("model")
    target = tmp_path / "ml" / "model"
    for _ in range(2):
        give_folder(source, target, size_bytes=MAX_COPIED_BYTES + 1)
        assert not target.is_symlink()
        assert (target / "model").samefile(source / "model")
        assert os.readlink(target / "latest") == "model"
    remove_tree(target)
    assert (source / "model").read_bytes() == b"weights"


def test_on_another_file_system_large_data_is_a_link_that_is_replaced(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    target = tmp_path / "ml" / "model"
    for _ in range(2):
        give_folder(source, target, size_bytes=MAX_COPIED_BYTES + 1)
        assert target.readlink() == source


def test_a_full_disk_is_no_reason_for_a_link(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OSError, match="No space left"):
        give_folder(source, tmp_path / "model", size_bytes=MAX_COPIED_BYTES + 1)


def test_a_read_only_tree_is_removed_but_not_what_its_links_lead_to(
    source: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner" / "link").symlink_to(source)
    (tree / "inner").chmod(0o555)
    tree.chmod(0o555)
    remove_tree(tree)
    assert not tree.exists()
    assert (source / "model").exists()


def test_a_link_is_no_tree(source: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(source)
    remove_tree(link)
    remove_tree(tmp_path / "missing")
    assert (source / "model").exists()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_recognized_in_the_errors_of_copytree(code: int) -> None:
    assert is_disk_full(OSError(code, os.strerror(code)))
    copying = shutil.Error([("a", "b", "Permission denied"), ("c", "d", os.strerror(code))])
    assert error_text(copying) == os.strerror(code)
    assert is_disk_full(copying)
    assert not is_disk_full(PermissionError(errno.EACCES, "Permission denied"))
