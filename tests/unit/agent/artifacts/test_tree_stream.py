import io
import os
import tarfile
from pathlib import Path

import pytest

from sagehen.agent.artifacts.tree_stream import PIECE_BYTES, tree_digest, tree_stream
from sagehen.agent.artifacts.unpack import make_read_only, unpack_plain


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """All that an archive may unpack to."""
    folder = tmp_path / "tree"
    (folder / "code" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "weights.bin").write_bytes(os.urandom(3 * PIECE_BYTES + 7))
    (folder / "code" / "run").write_bytes(b"#!/bin/sh\n")
    (folder / "code" / "run").chmod(0o755)
    (folder / "code" / "none").touch()
    (folder / "code" / "deep" / ("n" * 200)).write_bytes(b"long")
    (folder / "code" / "deep" / "größe \udcff").write_bytes(b"odd")
    (folder / "link").symlink_to("code/run")
    os.link(folder / "weights.bin", folder / "weights.again")
    make_read_only(folder)
    return folder


def unpacked(stream: bytes, folder: Path) -> Path:
    folder.mkdir()
    unpack_plain(io.BytesIO(stream), folder, max_bytes=2**30)
    make_read_only(folder)
    return folder


def test_a_copy_is_equal_and_has_the_same_digest(tree: Path, tmp_path: Path) -> None:
    stream = b"".join(tree_stream(tree))
    copy = unpacked(stream, tmp_path / "copy")
    assert b"".join(tree_stream(copy)) == stream
    assert tree_digest(copy) == tree_digest(tree)
    assert (copy / "weights.bin").read_bytes() == (tree / "weights.bin").read_bytes()
    assert (copy / "weights.bin").stat().st_ino == (copy / "weights.again").stat().st_ino
    assert os.readlink(copy / "link") == "code/run"
    assert (copy / "empty").is_dir()
    modes = {name: (copy / "code" / name).stat().st_mode & 0o777 for name in ("run", "none")}
    assert modes["run"] & 0o100
    assert not modes["none"] & 0o111


def test_pieces_are_bounded(tree: Path) -> None:
    assert max(map(len, tree_stream(tree))) <= PIECE_BYTES + 2 * tarfile.BLOCKSIZE


def test_folders_count_only_where_they_are_empty(tree: Path) -> None:
    # So that a copy has no more entries than the archive that the tree is from.
    with tarfile.open(fileobj=io.BytesIO(b"".join(tree_stream(tree)))) as tar:
        assert [member.name for member in tar if member.isdir()] == ["empty"]


def test_the_digest_does_not_depend_on_times_and_other_links(tree: Path, tmp_path: Path) -> None:
    before = tree_digest(tree)
    os.utime(tree / "weights.bin", (1, 1))
    # As an instance gets large files.
    os.link(tree / "weights.bin", tmp_path / "of an instance")
    assert tree_digest(tree) == before


def test_a_changed_file_has_another_digest(tree: Path) -> None:
    before = tree_digest(tree)
    with (tree / "weights.bin").open("r+b") as file:
        file.write(b"!")
    assert tree_digest(tree) != before


def test_a_file_that_shrinks_meanwhile_is_an_error(tree: Path) -> None:
    stream = tree_stream(tree)
    next(stream)
    os.truncate(tree / "weights.bin", 1)
    with pytest.raises(OSError, match="became shorter"):
        list(stream)


def test_an_empty_tree(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    copy = unpacked(b"".join(tree_stream(tmp_path / "tree")), tmp_path / "copy")
    assert list(copy.iterdir()) == []
