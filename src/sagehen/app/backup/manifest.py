"""Defines the files of a backup and verifies them.

manifest.json    written last: without it a folder is no backup
objects.jsonl    id, size and MD5 of each object file, one per line
state.db         or `state.dump`, by pg_dump
home/            keys, settings and other files
blobs/           object files
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
    "BlobRecord",
    "FileRecord",
    "Manifest",
    "blob_path",
    "bring_file",
    "describe",
    "describe_os_error",
    "read_blobs",
    "read_manifest",
]

FORMAT = 1
MANIFEST = "manifest.json"
LIST = "objects.jsonl"
STATE = "state.db"
DUMP = "state.dump"
HOME_FILES = "home"
BLOBS = "blobs"
_CHUNK_BYTES = 2**20
# other disk, no links, too many links
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EACCES)


class FileRecord(msgspec.Struct, frozen=True):
    """A file other than an object file."""

    size: int
    sha256: str


class BlobRecord(msgspec.Struct, frozen=True):
    """A file of an object or upload part."""

    id: str
    size: int
    md5: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `manifest.json`."""

    format: int = FORMAT
    sagehen: str
    """version that took the backup"""
    created_at: str
    """ISO 8601, UTC"""
    state: str
    """`sqlite` or `postgresql`"""
    state_id: str | None
    object_store_url: str | None
    """where the objects are, if not in the backup"""
    objects: int
    """number of object files"""
    object_bytes: int
    missing: tuple[str, ...] = ()
    """object files that the home lacked"""
    files: dict[str, FileRecord]
    """by path; no object files"""


def read_manifest(folder: Path) -> Manifest:
    """Raises BackupError for an incomplete backup or another format."""
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
        manifest = msgspec.json.decode(data, type=Manifest)
    except FileNotFoundError:
        raise BackupError(f"{folder} is not a complete backup: {MANIFEST} is missing.") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise BackupError(f"{path} cannot be read: {error}") from error
    if manifest.format != FORMAT:
        raise BackupError(
            f"{folder} is a backup of format {manifest.format}, and this version reads format "
            f"{FORMAT}. Use the Sagehen that took it, which was version {manifest.sagehen}."
        )
    for name in manifest.files:
        if name.startswith("/") or ".." in Path(name).parts:
            raise BackupError(f"{path} names the file {name!r}, which is outside of the backup.")
    return manifest


def read_blobs(folder: Path) -> Iterator[BlobRecord]:
    decoder = msgspec.json.Decoder(BlobRecord)
    with (folder / LIST).open("rb") as lines:
        for line in lines:
            yield decoder.decode(line)


def blob_path(root: Path, blob_id: str) -> Path:
    return root / blob_id[:2] / blob_id


def describe(path: Path) -> FileRecord:
    digest = hashlib.sha256()
    size = 0
    for chunk in _chunks(path):
        digest.update(chunk)
        size += len(chunk)
    return FileRecord(size, digest.hexdigest())


def bring_file(source: Path, target: Path, size: int, md5: str, *, verify: bool) -> None:
    """Links an object file to `target`, or else copies and verifies it.

    Links are safe, because object files never change. Raises FileNotFoundError, or BackupError for
    wrong bytes.
    """
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if source.is_symlink():
        source = source.resolve()  # a link to a symbolic link would depend on its target
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _copy(source, target, lambda actual: _check(source, actual, size, md5))
        return
    if target.stat().st_size != size:
        raise BackupError(
            f"The file {source} is damaged: it does not have the recorded {size} bytes."
        )
    if verify:
        digest = hashlib.md5(usedforsecurity=False)
        for chunk in _chunks(target):
            digest.update(chunk)
        _check(source, digest.hexdigest(), size, md5)


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


def _check(source: Path, actual: str, size: int, md5: str) -> None:
    if actual != md5:
        raise BackupError(
            f"The file {source} is damaged: its {size} bytes have the MD5 {actual}, not {md5}."
        )


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def describe_os_error(error: OSError) -> str:
    """Returns the reason, with its file; a full disk that is met while writing has none."""
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{reason} ({error.filename})"
