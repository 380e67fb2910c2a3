"""Takes a backup, also while the server runs: one moment's state and its object files."""

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from sagehen import __version__
from sagehen.app.backup.manifest import (
    BLOBS,
    DUMP,
    HOME_FILES,
    LIST,
    MANIFEST,
    STATE,
    BlobRecord,
    FileRecord,
    Manifest,
    blob_path,
    bring_file,
    describe,
    describe_os_error,
)
from sagehen.app.cluster import has_no_control
from sagehen.base.errors import BackupError, SagehenError
from sagehen.base.files import sync_folder
from sagehen.base.home import Home, keeping_private
from sagehen.base.settings import Settings
from sagehen.state.opening import check_whole, querying, sqlite_file
from sagehen.state.pairing import removals_held_off, state_id

__all__ = ["take_backup"]

_MAX_NAMED = 5
_TRIES = 3
"""files may be moving between objects and trash"""
_BLOB_ROWS = "SELECT blob_id, size, etag FROM blobs ORDER BY blob_id"

Rows = Iterator[Sequence[Any]]
"""ids, sizes and MD5s of files"""


@dataclass
class _CopiedBlobs:
    count: int = 0
    size: int = 0
    missing: list[str] = field(default_factory=list)


def take_backup(settings: Settings, target: Path, *, allow_missing: bool = False) -> Manifest:
    """Writes a backup to the new folder `target`. Blocks.

    Raises:
        BackupError: there is no home, `target` is unsuitable, or files are damaged or missing.
        StateError: the state is damaged or unreachable.
    """
    home = Home(settings.home)
    target = target.absolute()
    draft = _draft(home, target)
    try:
        with keeping_private():
            draft.mkdir(mode=0o700)
            manifest = _take(settings, home, draft, allow_missing)
            _write(draft / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2))
        sync_folder(draft)
        draft.rename(target)
        sync_folder(target.parent)
    except SagehenError:
        with suppress(OSError):
            draft.rmdir()  # if empty, so that a retry works
        raise
    except OSError as error:
        raise BackupError(
            f"The backup cannot be written: {describe_os_error(error)}. The partial backup is in "
            f"{draft}."
        ) from error
    return manifest


def _draft(home: Home, target: Path) -> Path:
    if not home.credentials.exists():
        raise BackupError(f"There is nothing to back up in {home.path}: no server has run there.")
    if has_no_control(home):
        raise BackupError(
            f"{home.path} is the home of a cluster's node without a control, where everything is "
            "made again when it is needed. Back up the home of a server: `sagehen cluster "
            "status` shows in the column `control` where there is one."
        )
    if target.is_relative_to(home.path.resolve()) or target.is_relative_to(home.path):
        raise BackupError(f"{target} is in the home. A backup belongs elsewhere, on another disk.")
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise BackupError(f"{target} exists already. Name a folder that does not exist yet.")
    draft = target.with_name(target.name + ".partial")
    if draft.exists():
        raise BackupError(
            f"{draft} exists: another backup is running, or one was interrupted. Remove the folder "
            "if no backup is running."
        )
    return draft


def _take(settings: Settings, home: Home, draft: Path, allow_missing: bool) -> Manifest:
    with removals_held_off(home.objects), _snapshot(settings, draft) as (name, rows):
        # Homes that share a remote store share a state, which names other homes' files too.
        may_miss = allow_missing or settings.object_store_url is not None
        copied = _bring_blobs(home, draft, rows, may_miss)
    files = {name: describe(draft / name), LIST: describe(draft / LIST)}
    files |= _copy_home_files(settings, home, draft)
    with querying(settings) as (query, tables):
        own_id = state_id(query) if "state_identity" in tables else None
    return Manifest(
        sagehen=__version__,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        state="sqlite" if name == STATE else "postgresql",
        state_id=own_id,
        object_store_url=settings.object_store_url,
        objects=copied.count,
        object_bytes=copied.size,
        missing=tuple(copied.missing),
        files=files,
    )


@contextmanager
def _snapshot(settings: Settings, draft: Path) -> Iterator[tuple[str, Rows]]:
    """Copies the state; yields the copy's file name and the rows of its object files."""
    file = sqlite_file(settings)
    if file is None:
        from sagehen.app.backup.postgres import snapshot

        with snapshot(settings.state_url, draft / DUMP) as rows:
            yield DUMP, rows
        return
    copy = draft / STATE
    check_whole(file, seconds=float("inf"))
    _copy_state(file, copy)
    # `immutable`: SQLite creates no files beside it.
    with closing(sqlite3.connect(f"file:{quote(str(copy))}?immutable=1", uri=True)) as state:
        yield STATE, iter(state.execute(_BLOB_ROWS))


def _copy_state(file: Path, copy: Path) -> None:
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as state,
            closing(sqlite3.connect(copy)) as target,
        ):
            # One step: a stepwise copy restarts at each write.
            state.backup(target, pages=-1)
            ((check_result,),) = target.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.Error as error:
        raise BackupError(f"The state {file} cannot be copied: {error}.") from error
    if check_result != "ok":
        raise BackupError(f"The copy of the state {file} is damaged: {check_result}.")
    copy.chmod(0o600)
    with copy.open("rb") as written:
        os.fsync(written.fileno())


def _bring_blobs(home: Home, draft: Path, rows: Rows, allow_missing: bool) -> _CopiedBlobs:
    copied = _CopiedBlobs()
    encoder = msgspec.json.Encoder()
    (draft / BLOBS).mkdir(mode=0o700)
    with (draft / LIST).open("wb") as listed:
        for blob_id, size, md5 in rows:
            blob = BlobRecord(str(blob_id), int(size), str(md5))
            if _bring_blob(home, draft, blob):
                copied.count += 1
                copied.size += blob.size
                listed.write(encoder.encode(blob) + b"\n")
            else:
                copied.missing.append(blob.id)
        listed.flush()
        os.fsync(listed.fileno())
    for folder in (draft / BLOBS).iterdir():
        sync_folder(folder)
    sync_folder(draft / BLOBS)
    if copied.missing and not allow_missing:
        raise BackupError(
            f"{len(copied.missing)} files of objects are missing in {home.objects}: "
            f"{', '.join(copied.missing[:_MAX_NAMED])} …. To back up the others: --allow-missing. "
            f"The partial backup is in {draft}."
        )
    return copied


def _bring_blob(home: Home, draft: Path, blob: BlobRecord) -> bool:
    target = blob_path(draft / BLOBS, blob.id)
    sources = (blob_path(home.objects / "blobs", blob.id), home.objects / "trash" / blob.id)
    for source in sources * _TRIES:
        try:
            bring_file(source, target, blob.size, blob.md5, verify=False)
        except FileNotFoundError:
            continue
        return True
    return False


def _copy_home_files(settings: Settings, home: Home, draft: Path) -> dict[str, FileRecord]:
    state = sqlite_file(settings)
    states = {state.name, state.resolve().name} if state is not None else set()
    (draft / HOME_FILES).mkdir(mode=0o700)
    copied = {}
    for path in sorted(home.path.iterdir()):
        if not path.is_file() or path.name.startswith("state.db") or path.suffix == ".new":
            continue
        # A running state's SQLite and lease files would spoil its copy.
        if any(path.name == name or path.name.startswith(f"{name}-") for name in states):
            continue
        target = draft / HOME_FILES / path.name
        shutil.copyfile(path, target)
        target.chmod(0o600)
        with target.open("rb") as written:
            os.fsync(written.fileno())
        copied[f"{HOME_FILES}/{path.name}"] = describe(target)
    sync_folder(draft / HOME_FILES)
    return copied


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
