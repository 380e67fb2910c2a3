"""What a backup consists of, and what proves that it is whole.

manifest.json    written last: without it a folder is no backup
objects.jsonl    of every file of an object its id, size and MD5, a line each
state.db         or `state.dump`, pg_dump's, where the state is in PostgreSQL
home/            keys, settings and the other files of the home itself
blobs/           the objects' files, as they lie in the home
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from sagehen.base.errors import BackupError

__all__ = [
    "BLOBS",
    "DUMP",
    "HOME_FILES",
    "LIST",
    "MANIFEST",
    "STATE",
    "BlobLine",
    "FileRecord",
    "Manifest",
    "blob_path",
    "bring_file",
    "describe",
    "read_blobs",
    "read_manifest",
    "sync_folder",
]

FORMAT = 1
MANIFEST = "manifest.json"
LIST = "objects.jsonl"
STATE = "state.db"
DUMP = "state.dump"
HOME_FILES = "home"
BLOBS = "blobs"
_CHUNK_BYTES = 2**20
# Another disk, one that has no links, or too many links to a file.
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EACCES)


class FileRecord(msgspec.Struct, frozen=True):
    """A file of a backup but the objects' files."""

    size: int
    sha256: str


class BlobLine(msgspec.Struct, frozen=True):
    """A file of an object, or of a part of an upload."""

    id: str
    size: int
    md5: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `manifest.json`."""

    format: int = FORMAT
    sagehen: str
    """The version that took the backup."""
    created_at: str
    """ISO 8601, in UTC."""
    state: str
    """`sqlite` or `postgresql`."""
    state_id: str | None
    object_store_url: str | None
    """Where the objects are, if not in the backup."""
    objects: int
    """Files of objects."""
    object_bytes: int
    missing: tuple[str, ...] = ()
    """Files of objects that were missing in the home already."""
    files: dict[str, FileRecord]
    """By path, all but the objects' files and this one."""


def read_manifest(folder: Path) -> Manifest:
    """
    Raises:
        BackupError: the folder holds no whole backup, or one of a newer version.
    """
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
        found = msgspec.json.decode(data, type=Manifest)
    except FileNotFoundError:
        raise BackupError(f"{folder} is no whole backup: {MANIFEST} is not there.") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise BackupError(f"{path} cannot be read: {error}") from error
    if found.format != FORMAT:
        raise BackupError(
            f"{folder} is a backup of format {found.format}, and this version reads format "
            f"{FORMAT}. Use the Sagehen that took it, which was version {found.sagehen}."
        )
    for name in found.files:
        if name.startswith("/") or ".." in Path(name).parts:
            raise BackupError(f"{path} names the file {name!r}, which is outside of the backup.")
    return found


def read_blobs(folder: Path) -> Iterator[BlobLine]:
    """The objects' files, as they are listed."""
    decoder = msgspec.json.Decoder(BlobLine)
    with (folder / LIST).open("rb") as lines:
        for line in lines:
            yield decoder.decode(line)


def blob_path(root: Path, blob_id: str) -> Path:
    """Where the file of an object lies below `blobs`, in a home as in a backup."""
    return root / blob_id[:2] / blob_id


def describe(path: Path) -> FileRecord:
    """The record of a file as it is now."""
    digest = hashlib.sha256()
    size = 0
    for chunk in _chunks(path):
        digest.update(chunk)
        size += len(chunk)
    return FileRecord(size, digest.hexdigest())


def bring_file(source: Path, target: Path, size: int, md5: str, *, verify: bool) -> None:
    """Have the file of an object at `target` too: as a link where that is possible, else a copy,
    which is always verified. Files of objects are never changed.

    Raises:
        FileNotFoundError: it is not there.
        BackupError: its bytes are not those that the state knows.
    """
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if source.is_symlink():
        source = source.resolve()  # A link to a symbolic link would need what that one leads to.
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _copy(source, target, lambda found: _check(source, found, size, md5))
        return
    if target.stat().st_size != size:
        raise BackupError(f"The file {source} has not the {size} bytes that it should have.")
    if verify:
        digest = hashlib.md5(usedforsecurity=False)
        for chunk in _chunks(target):
            digest.update(chunk)
        _check(source, digest.hexdigest(), size, md5)


def sync_folder(folder: Path) -> None:
    """Put a folder's names on disk for good."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy(source: Path, target: Path, check: Callable[[str], None]) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    with source.open("rb", buffering=0) as original, target.open("xb") as copy:
        while chunk := original.read(_CHUNK_BYTES):
            digest.update(chunk)
            copy.write(chunk)
        copy.flush()
        os.fsync(copy.fileno())
    shutil.copystat(source, target)
    check(digest.hexdigest())


def _check(source: Path, found: str, size: int, md5: str) -> None:
    if found != md5:
        raise BackupError(
            f"The file {source} is damaged: its {size} bytes have the MD5 {found}, not {md5}."
        )


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
