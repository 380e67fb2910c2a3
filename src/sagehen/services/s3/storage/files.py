"""Files of objects' bytes, each with an opaque name, written once and never changed.

Drafts start in memory, grow in `drafts/` and move to `blobs/` once synced. Files without a row in
the state move to `trash/` for a while, so that they can be recovered if the wrong state was
restored.
"""

import contextlib
import errno
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from sagehen.base.files import make_folder, sync_folder
from sagehen.services.s3.storage.digests import base64_of, new_digest
from sagehen.services.s3.storage.errors import StorageFull
from sagehen.state.pairing import BLOB_NAME, folder_id, may_remove

__all__ = ["MOST_HELD_BYTES", "BlobFiles", "Draft", "Known"]

log = logging.getLogger(__name__)

Known = Callable[[list[str]], set[str]]
"""returns those of the blob ids that have a row"""

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_SWEEP_BATCH = 500
_CLOCK_SLACK_SECONDS = 0.1
"""file systems' clocks lag by some milliseconds"""

MOST_HELD_BYTES = 16 * 2**10
"""Smaller objects are kept in rows, which commit and read faster."""


MOST_RESERVED_BYTES = 32 * 2**20
RESERVED_SHARE = 0.05
"""This share of the disk, at most MOST_RESERVED_BYTES, stays free: on a full disk not even a
deletion could be recorded."""


class Draft:
    """Bytes of an object being received. Use from one thread at a time."""

    def __init__(self, path: Path, algorithm: str | None) -> None:
        self.blob_id = path.name
        self.path = path
        self.algorithm = algorithm
        self.size = 0
        self._held = bytearray()
        self._file: BinaryIO | None = None
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._digest = new_digest(algorithm) if algorithm else None

    @property
    def md5(self) -> bytes:
        return self._md5.digest()

    @property
    def checksum(self) -> str | None:
        """Base64 of the checksum by `algorithm`."""
        return base64_of(self._digest.digest()) if self._digest else None

    @property
    def held(self) -> bytes | None:
        """Returns None once the bytes are in a file."""
        return bytes(self._held) if self._file is None else None

    def write(self, data: bytes) -> None:
        """Writes all of `data` or nothing, so a caller may retry. Raises StorageFull."""
        if self._file is None and self.size + len(data) <= MOST_HELD_BYTES:
            self._held += data
        else:
            self._write_out(self._open(), data, self.size)
        self._md5.update(data)
        if self._digest:
            self._digest.update(data)
        self.size += len(data)

    def settle(self) -> None:
        """Syncs the draft to disk."""
        file = self._open()
        with _telling_when_full():
            os.fsync(file.fileno())
        file.close()

    def discard(self) -> None:
        """Has no effect once the draft is a blob."""
        if self._file is not None:
            self._file.close()
            self.path.unlink(missing_ok=True)

    def _open(self) -> BinaryIO:
        if self._file is None:
            with _telling_when_full():
                # Unbuffered, as callers write large pieces.
                file = self.path.open("xb", buffering=0)
            try:
                self._write_out(file, self._held, 0)
            except BaseException:
                file.close()
                self.path.unlink()
                raise
            self._file, self._held = file, bytearray()
        return self._file

    def _write_out(self, file: BinaryIO, data: bytes | bytearray, before: int) -> None:
        """Truncates the file to `before` bytes on an error."""
        view = memoryview(data)
        with _telling_when_full():
            _leave_reserve(self.path.parent)
            try:
                while view:
                    view = view[file.write(view) :]
            except OSError:
                with contextlib.suppress(OSError):
                    file.seek(before)
                    file.truncate()
                raise


class BlobFiles:
    """The files of one object store."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._drafts = root / "drafts"
        self._blobs = root / "blobs"
        self._trash = root / "trash"
        for folder in (root, self._drafts, self._blobs, self._trash):
            make_folder(folder)
        self._durable_folders: set[Path] = set()
        """of blobs, whose entries this process has synced"""

    @property
    def pair_id(self) -> str | None:
        """Returns the id shared with the state; None before the first start."""
        return folder_id(self._root)

    def draft(self, algorithm: str | None = None) -> Draft:
        """Raises StorageFull."""
        with _telling_when_full():
            _leave_reserve(self._drafts)
        return Draft(self._drafts / secrets.token_hex(16), algorithm)

    def keep(self, draft: Draft) -> str:
        """Makes the draft a durable blob; returns its id."""
        draft.settle()
        target = self._path(draft.blob_id)
        with _telling_when_full():
            self._make_folder(target.parent)
            draft.path.rename(target)
            sync_folder(target.parent)
        return draft.blob_id

    def drop(self, draft: Draft) -> None:
        """Removes a draft, also one that is kept as a blob already."""
        draft.discard()
        self.remove([draft.blob_id])

    def link(self, blob_id: str) -> str:
        """Hard-links a blob; returns the new id. Raises FileNotFoundError."""
        twin = self._path(secrets.token_hex(16))
        with _telling_when_full():
            self._make_folder(twin.parent)
            os.link(self._path(blob_id), twin)
            sync_folder(twin.parent)
        return twin.name

    def open(self, blob_id: str) -> BinaryIO:
        """Returns a file that stays readable if the blob is removed. Raises FileNotFoundError."""
        return self._path(blob_id).open("rb", buffering=0)

    def remove(self, blob_ids: Collection[str]) -> None:
        """Removes blobs; ignores missing ones. During a backup, which may need them, they go to the
        trash.

        Does not raise OSError, as callers have committed already, or have another error to report:
        a file that stays has no row, and is swept.
        """
        if not blob_ids:
            return
        try:
            with may_remove(self._root) as may:
                for blob_id in blob_ids:
                    path = self._path(blob_id)
                    if may:
                        path.unlink(missing_ok=True)
                    else:
                        self._throw_away(path, time.time())
        except OSError as error:
            extra = {"action": "remove_files", "count": len(blob_ids)}
            log.warning("Files of objects stay until they are swept: %s", error, extra=extra)

    def drop_drafts(self, before: float) -> int:
        """Deletes drafts last written before `before`, in seconds since the epoch."""
        return sum(_remove_old(path, before) for path in _files(self._drafts))

    def sweep(self, before: float, now: float, known: Known) -> int:
        """Moves files without a row to the trash.

        Args:
            before: seconds since the epoch; newer files are kept, as their rows may not be
                committed yet.
        """
        before -= _CLOCK_SLACK_SECONDS
        moved = 0
        for folder in _folders(self._blobs):
            for batch in _batches(_files(folder), _SWEEP_BATCH):
                named = known([path.name for path in batch])
                gone = [path for path in batch if path.name not in named and _is_old(path, before)]
                gone = [path for path in gone if self._throw_away(path, now)]
                # Restore files whose rows were committed meanwhile.
                moved += len(gone) - self._put_back(known([path.name for path in gone]))
        return moved

    def put_back(self, known: Known) -> int:
        """Restores files that have a row."""
        return sum(
            self._put_back(known([path.name for path in batch]))
            for batch in _batches(_files(self._trash), _SWEEP_BATCH)
        )

    def empty_trash(self, before: float, known: Known) -> int:
        """Deletes files moved to the trash before `before`, unless a backup is being made."""
        removed = 0
        with may_remove(self._root) as may:
            if may:
                removed = self._empty_trash(before, known)
        return removed

    def _empty_trash(self, before: float, known: Known) -> int:
        removed = 0
        for batch in _batches(_files(self._trash), _SWEEP_BATCH):
            named = known([path.name for path in batch])
            removed += sum(
                _remove_old(path, before, by_modified=True)
                for path in batch
                if path.name not in named
            )
        return removed

    def trash_size(self) -> int:
        return sum(1 for _ in _files(self._trash))

    def _throw_away(self, path: Path, now: float) -> bool:
        # The time is set first, to be right even after a crash.
        try:
            os.utime(path, (now, now))
            path.rename(self._trash / path.name)
        except FileNotFoundError:
            return False
        return True

    def _put_back(self, blob_ids: Collection[str]) -> int:
        for blob_id in blob_ids:
            target = self._path(blob_id)
            self._make_folder(target.parent)
            with contextlib.suppress(FileNotFoundError):
                (self._trash / blob_id).rename(target)
        return len(blob_ids)

    def _path(self, blob_id: str) -> Path:
        return self._blobs / blob_id[:2] / blob_id

    def _make_folder(self, folder: Path) -> None:
        # One that exists may just have been made by another thread, and not be synced yet.
        if folder not in self._durable_folders:
            folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(self._blobs)
            self._durable_folders.add(folder)


@contextlib.contextmanager
def _telling_when_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise StorageFull(
                "The disk that holds the objects is full. Remove objects or make room, then try "
                "again."
            ) from error
        raise


def _leave_reserve(folder: Path) -> None:
    disk = os.statvfs(folder)
    reserved = min(MOST_RESERVED_BYTES, RESERVED_SHARE * disk.f_blocks * disk.f_frsize)
    if disk.f_bavail * disk.f_frsize < reserved:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _folders(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)


def _files(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if BLOB_NAME.fullmatch(entry.name):
                yield Path(entry.path)


def _batches(paths: Iterator[Path], size: int) -> Iterator[list[Path]]:
    while batch := list(islice(paths, size)):
        yield batch


def _is_old(path: Path, before: float) -> bool:
    # The change time, because it includes the rename from draft to blob.
    try:
        return path.stat().st_ctime < before
    except FileNotFoundError:
        return False


def _remove_old(path: Path, before: float, by_modified: bool = False) -> bool:
    # A sweep or a discard may remove the file at any time.
    try:
        status = path.stat()
        if (status.st_mtime if by_modified else status.st_ctime) >= before:
            return False
        path.unlink()
    except FileNotFoundError:
        return False
    return True
