import gzip
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sagehen.agent.artifacts import unpack as unpacking
from sagehen.agent.artifacts.unpack import (
    MAX_TRAILING_BYTES,
    Unpacked,
    make_read_only,
    unpack,
)
from sagehen.base.errors import ArtifactRejected

MakeArchive = Callable[..., bytes]
Unpack = Callable[..., Unpacked]


def member(name: str, kind: bytes, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = link
    info.mode = mode
    return info


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    paths = tmp_path / "outer" / "model"
    paths.mkdir(parents=True)
    return paths


@pytest.fixture
def unpack_bytes(tmp_path: Path, folder: Path) -> Unpack:
    def run(data: bytes, max_bytes: int = 2**20) -> Unpacked:
        archive = tmp_path / "archive"
        archive.write_bytes(data)
        return unpack(archive, folder, max_bytes=max_bytes)

    return run


def test_files_and_folders_are_unpacked(
    unpack_bytes: Unpack, make_archive: MakeArchive, folder: Path
) -> None:
    script = member("./code/run.sh", tarfile.REGTYPE, mode=0o755)
    data = make_archive(
        member("code", tarfile.DIRTYPE), ("model.json", b"{}"), ("a/b/c.txt", b"deep"), script
    )
    assert unpack_bytes(data) == Unpacked(size_bytes=6, files=3)
    assert (folder / "model.json").read_bytes() == b"{}"
    assert (folder / "a/b/c.txt").read_bytes() == b"deep"
    assert os.access(folder / "code/run.sh", os.X_OK)


def test_an_empty_archive_is_an_empty_folder(
    unpack_bytes: Unpack, make_archive: MakeArchive
) -> None:
    assert unpack_bytes(make_archive()) == Unpacked(0, 0)


def test_a_later_entry_of_the_same_name_wins(
    unpack_bytes: Unpack, make_archive: MakeArchive, folder: Path
) -> None:
    unpack_bytes(make_archive(("model", b"old"), ("model", b"new")))
    assert (folder / "model").read_bytes() == b"new"


def test_links_inside_are_kept(
    unpack_bytes: Unpack, make_archive: MakeArchive, folder: Path
) -> None:
    unpack_bytes(
        make_archive(
            member("sub/latest", tarfile.SYMTYPE, "../v1/model"),
            ("v1/model", b"tree"),
            member("copy", tarfile.LNKTYPE, "v1/model"),
        )
    )
    assert (folder / "sub/latest").read_bytes() == b"tree"
    assert (folder / "copy").read_bytes() == b"tree"


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([("../evil", b"x")], "leads out of its folder"),
        ([("a/../../evil", b"x")], "leads out of its folder"),
        ([("/evil", b"x")], "absolute path"),
        ([member("l", tarfile.SYMTYPE, "/etc/passwd")], "link"),
        ([member("l", tarfile.SYMTYPE, "../outside")], "link"),
        ([member("l", tarfile.SYMTYPE, "nothing")], "not inside the archive"),
        ([member("l", tarfile.SYMTYPE, "l")], "through more than 40 links"),
        ([member("l", tarfile.LNKTYPE, "../outside")], "outside|out of"),
        ([member("l", tarfile.LNKTYPE, "later"), ("later", b"x")], "not a file that comes before"),
        ([member("d", tarfile.SYMTYPE, "."), ("d/x", b"x")], "both as a folder"),
        ([member("d", tarfile.SYMTYPE, "."), member("e", tarfile.SYMTYPE, "d/../../y")], "link"),
        ([("a", b"x"), ("a/b", b"x")], "both as a folder"),
        ([("a/b", b"x"), ("a", b"x")], "both as a folder"),
        ([member("pipe", tarfile.FIFOTYPE)], "special file"),
        ([member("disk", tarfile.BLKTYPE)], "special file"),
        ([member("tty", tarfile.CHRTYPE)], "special file"),
        ([member("su", tarfile.REGTYPE, mode=0o4755)], "setuid"),
        ([("n" * 256, b"x")], "more than 255 bytes"),
        ([("/".join(["n" * 200] * 6), b"x")], "more than 1024 bytes"),
        ([("big", b"x" * (2**20 + 1))], "unpacks to more than"),
    ],
)
def test_what_does_not_belong_is_refused(
    unpack_bytes: Unpack,
    make_archive: MakeArchive,
    folder: Path,
    entries: list[tarfile.TarInfo | tuple[str, bytes]],
    reason: str,
) -> None:
    with pytest.raises(ArtifactRejected, match=reason):
        unpack_bytes(make_archive(*entries))
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_chain_of_links_cannot_climb_out(
    unpack_bytes: Unpack, make_archive: MakeArchive, folder: Path
) -> None:
    """Read as text `here/../victim` stays inside; followed, `here` being `.`, it does not."""
    (folder.parent / "victim").write_bytes(b"secret")
    data = make_archive(
        member("here", tarfile.SYMTYPE, "."), member("out", tarfile.SYMTYPE, "here/../victim")
    )
    with pytest.raises(ArtifactRejected, match="link"):
        unpack_bytes(data)


def test_a_small_archive_of_very_much_is_refused(unpack_bytes: Unpack) -> None:
    header = tarfile.TarInfo("zeros")
    header.size = 2**40
    data = gzip.compress(header.tobuf() + bytes(2**20))
    with pytest.raises(ArtifactRejected, match="unpacks to more than"):
        unpack_bytes(data)


def test_zeros_behind_the_last_entry_are_bounded(unpack_bytes: Unpack) -> None:
    assert unpack_bytes(gzip.compress(bytes(2**20), 1)).files == 0
    with pytest.raises(ArtifactRejected, match="bytes behind its last entry"):
        unpack_bytes(gzip.compress(bytes(MAX_TRAILING_BYTES + 2**21), 1))


def test_a_header_that_would_fill_memory_is_refused(unpack_bytes: Unpack) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type = tarfile.GNUTYPE_LONGNAME
    header.size = 2**33
    with pytest.raises(ArtifactRejected, match="header of"):
        unpack_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024)))


def test_a_negative_size_does_not_hang(unpack_bytes: Unpack) -> None:
    header = bytearray(tarfile.TarInfo("back").tobuf())
    header[124:136] = b"\xff" * 10 + b"\xfe\x00"  # Base 256, below zero.
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    with pytest.raises(ArtifactRejected):
        unpack_bytes(gzip.compress(bytes(header) + bytes(4096)))


def test_too_many_entries_are_refused(
    unpack_bytes: Unpack, make_archive: MakeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "MAX_ENTRIES", 3)
    with pytest.raises(ArtifactRejected, match="more than 3 entries"):
        unpack_bytes(make_archive(*((f"f{index}", b"") for index in range(4))))


@pytest.mark.parametrize("data", [b"", b"{}", b"PK\x03\x04", gzip.compress(b"no tar", mtime=0)])
def test_what_is_no_archive_is_refused(unpack_bytes: Unpack, data: bytes) -> None:
    with pytest.raises(ArtifactRejected):
        unpack_bytes(data)


def test_a_plain_tar_is_refused(unpack_bytes: Unpack, make_archive: MakeArchive) -> None:
    with pytest.raises(ArtifactRejected):
        unpack_bytes(make_archive(("model", b"x"), mode="w:"))


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.99])
def test_an_archive_that_is_cut_short_is_refused(
    unpack_bytes: Unpack, make_archive: MakeArchive, keep: float
) -> None:
    data = make_archive(("model", os.urandom(10_000)))
    with pytest.raises(ArtifactRejected):
        unpack_bytes(data[: int(len(data) * keep)])


def test_a_flipped_bit_is_noticed(unpack_bytes: Unpack, make_archive: MakeArchive) -> None:
    data = bytearray(make_archive(("model", os.urandom(10_000))))
    data[5000] ^= 1
    with pytest.raises(ArtifactRejected):
        unpack_bytes(bytes(data))


def test_a_damaged_header_in_the_middle_is_noticed(
    unpack_bytes: Unpack, make_archive: MakeArchive
) -> None:
    plain = bytearray(gzip.decompress(make_archive(("one", b"x"), ("two", b"y"))))
    plain[1024 + 150] ^= 1
    with pytest.raises(ArtifactRejected, match="no valid header"):
        unpack_bytes(gzip.compress(bytes(plain)))


def test_read_only_takes_every_right_to_write(
    unpack_bytes: Unpack, make_archive: MakeArchive, folder: Path
) -> None:
    unpack_bytes(make_archive(("a/b", b"x"), member("l", tarfile.SYMTYPE, "a/b")))
    make_read_only(folder)
    for path in (folder, folder / "a", folder / "a/b"):
        assert not path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    for path in (folder, folder / "a"):
        path.chmod(0o755)


class TestWhatWouldTakeForever:
    @pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
    def test_headers_of_headers_are_refused(self, unpack_bytes: Unpack, kind: bytes) -> None:
        info = member("h", kind)
        info.size = len(b"8 p=abc\n")
        header = info.tobuf(tarfile.GNU_FORMAT) + b"8 p=abc\n".ljust(512, b"\0")
        with pytest.raises(ArtifactRejected, match="nested extended headers"):
            unpack_bytes(gzip.compress(header * 20_000), max_bytes=2**30)

    def test_a_chain_of_more_links_than_the_kernel_follows_is_refused(
        self, unpack_bytes: Unpack, make_archive: MakeArchive
    ) -> None:
        chain = [member(f"l{at + 1}", tarfile.SYMTYPE, f"l{at}") for at in range(1500)]
        with pytest.raises(ArtifactRejected, match=r"l41.* through more than 40 links"):
            unpack_bytes(make_archive(("l0", b"x"), *chain))

    def test_a_loop_of_links_is_refused(
        self, unpack_bytes: Unpack, make_archive: MakeArchive
    ) -> None:
        loop = [member("a", tarfile.SYMTYPE, "b"), member("b", tarfile.SYMTYPE, "a")]
        with pytest.raises(ArtifactRejected, match="more than"):
            unpack_bytes(make_archive(*loop))

    def test_a_file_is_not_looked_up_from_the_root_on(
        self, unpack_bytes: Unpack, make_archive: MakeArchive, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of 100,000 files in deep folders that would be most of a minute."""
        resolved: list[object] = []
        resolve = os.path.realpath
        monkeypatch.setattr(
            os.path, "realpath", lambda path, **how: resolved.append(path) or resolve(path, **how)
        )
        unpack_bytes(make_archive(*((f"a/b/c/{at}", b"") for at in range(100))))
        assert len(resolved) < 10
