"""Drafts: what does not fit is not half there."""

import errno
import hashlib
from pathlib import Path

import pytest

from sagehen.services.s3.storage import files
from sagehen.services.s3.storage.errors import StorageFull
from sagehen.services.s3.storage.files import BlobFiles


class FullDisk:
    """A file on a disk that takes so many bytes more."""

    def __init__(self, file, room: int) -> None:
        self._file = file
        self.room = room

    def write(self, data) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "full")
        written = self._file.write(data[: self.room])
        self.room -= written
        return written

    def __getattr__(self, name: str):
        return getattr(self._file, name)


def test_what_did_not_fit_is_written_again(tmp_path: Path) -> None:
    store = BlobFiles(tmp_path)
    draft = store.draft()
    draft.write(b"a" * 100_000)
    draft._file = FullDisk(draft._file, 10)
    with pytest.raises(StorageFull):
        draft.write(b"b" * 100)
    assert draft.size == 100_000
    draft._file.room = 1000
    draft.write(b"c" * 100)
    whole = b"a" * 100_000 + b"c" * 100
    assert draft.md5 == hashlib.md5(whole, usedforsecurity=False).digest()
    with store.open(store.keep(draft)) as blob:
        assert blob.read() == whole


def test_a_draft_that_finds_no_room_for_a_file_stays_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = BlobFiles(tmp_path)
    draft = store.draft()
    draft.write(b"a" * 100)

    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patches:
        patches.setattr(files, "_leave_reserve", full)
        with pytest.raises(StorageFull):
            draft.write(b"b" * 20_000)
    assert draft.held == b"a" * 100
    assert list((tmp_path / "drafts").iterdir()) == []
    draft.write(b"b" * 20_000)
    draft.settle()
    assert draft.path.read_bytes() == b"a" * 100 + b"b" * 20_000
