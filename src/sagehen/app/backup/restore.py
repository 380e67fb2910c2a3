"""Restores a backup; files already in the home are moved aside, never deleted.

Everything is checked and staged before files move. The state comes last: after an interruption, the
server finds objects without a state and refuses to start.
"""

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from sagehen.app.backup.manifest import (
    BLOBS,
    DUMP,
    HOME_FILES,
    LIST,
    STATE,
    Manifest,
    blob_path,
    bring_file,
    describe,
    describe_os_error,
    read_blobs,
    read_manifest,
)
from sagehen.base.errors import BackupError, HomeError
from sagehen.base.files import sync_folder
from sagehen.base.home import (
    REPLACED_PREFIX,
    RESTORING,
    Home,
    keeping_private,
    locked,
    prepare_home,
)
from sagehen.base.settings import Settings
from sagehen.state.leases import LeaseLock
from sagehen.state.opening import check_whole, sqlite_file, state_name
from sagehen.state.pairing import BLOB_NAME, write_id

__all__ = ["restore_backup"]

_SQLITE_ENDS = ("", "-wal", "-shm", "-journal")


def restore_backup(
    settings: Settings, source: Path, *, replace: bool = False
) -> tuple[Manifest, Path | None]:
    """Restores the home; returns the manifest and the folder of the moved files, if any. Blocks.

    Args:
        replace: move the home's files, and an SQLite state elsewhere, aside.

    Raises:
        BackupError: the backup is incomplete or for another kind of database.
        HomeError: the home is not empty or is in use.
        StateError: the backup's state is damaged, or PostgreSQL's database is not empty.
    """
    source = source.absolute()
    manifest = read_manifest(source)
    _check_kind(settings, manifest)
    home = Home(settings.home)
    if not replace:
        _refuse_nonempty(settings, home)
    elif source.is_relative_to(home.path):
        raise BackupError(
            f"The backup {source} is in the home that it replaces. Move it elsewhere."
        )
    with keeping_private():
        prepare_home(home.path)
        with locked(home), _unused(settings):
            replaced = None
            try:
                stage = _stage(home, source, manifest)
                replaced = _move_aside(settings, home) if replace else None
                _put_in_place(settings, home, stage)
            except OSError as error:
                where = (
                    "" if replaced is None else f" The former files of the home are in {replaced}."
                )
                raise BackupError(
                    f"The backup cannot be restored: {describe_os_error(error)}.{where}"
                ) from error
    return manifest, replaced


def _check_kind(settings: Settings, manifest: Manifest) -> None:
    in_sqlite = sqlite_file(settings) is not None
    if in_sqlite != (manifest.state == "sqlite"):
        raise BackupError(
            f"The state in the backup is {manifest.state}'s, but database_url says "
            f"{state_name(settings)}. Set database_url (SAGEHEN_DATABASE_URL) to "
            + ("an empty database of PostgreSQL." if in_sqlite else "nothing, or SQLite.")
        )
    if not in_sqlite:
        from sagehen.app.backup.postgres import is_empty

        if not is_empty(settings.state_url):
            raise BackupError(
                f"The database {state_name(settings)} has tables. A backup is restored into an "
                "empty database only: create one with createdb, and set database_url to it."
            )


def _refuse_nonempty(settings: Settings, home: Home) -> None:
    names = [path.name for path in _contents(home)] if home.path.is_dir() else []
    file = sqlite_file(settings)
    if file is not None and file.exists() and file.parent != home.path:
        names.append(str(file))
    if names:
        raise HomeError(
            f"The home {home.path} is not empty ({', '.join(sorted(names)[:5])}). Choose another "
            "with --home, or give --replace: its files are then moved aside, not deleted."
        )


@contextmanager
def _unused(settings: Settings) -> Iterator[None]:
    """Locks out other homes' servers, which would go on writing to the moved SQLite state.

    Raises HomeError if one uses it.
    """
    file = sqlite_file(settings)
    file = None if file is None else file.resolve()
    beside = [] if file is None or not file.parent.is_dir() else sorted(file.parent.iterdir())
    leases = [
        LeaseLock(path)
        for path in beside
        if file is not None and path.name.startswith(f"{file.name}-lease-")
    ]
    try:
        for lease in leases:
            if lease.take() is False:
                raise HomeError(
                    f"The state {file} is in use by a server with another home. Stop that one, or "
                    "choose another state with database_url."
                )
        yield
    finally:
        for lease in leases:
            lease.release()


def _contents(home: Home) -> Iterator[Path]:
    for path in home.path.iterdir():
        if path == home.run or _is_of_restores(path):
            continue
        if path == home.objects:
            if any(_contents_of_objects(home)):
                yield path
        elif path.is_symlink() or not path.is_dir() or any(_files_below(path)):
            yield path


def _contents_of_objects(home: Home) -> Iterator[Path]:
    for path in home.objects.iterdir() if home.objects.is_dir() else ():
        if not _is_of_restores(path) and (not path.is_dir() or any(_files_below(path))):
            yield path


def _is_of_restores(path: Path) -> bool:
    return path.name == RESTORING or path.name.startswith(REPLACED_PREFIX)


def _files_below(folder: Path) -> Iterator[str]:
    for _, _, names in os.walk(folder):
        yield from names


def _stage(home: Home, source: Path, manifest: Manifest) -> Path:
    stage = home.path / RESTORING
    # The objects may be on another disk, where renaming fails.
    objects = home.objects / RESTORING
    for path in (stage, objects):
        if path.exists():
            shutil.rmtree(path)  # from an interrupted restore
        path.mkdir(mode=0o700)
    for name, record in manifest.files.items():
        target = stage / name
        target.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            shutil.copyfile(source / name, target)
        except FileNotFoundError:
            raise BackupError(f"The backup is incomplete: {name} is missing.") from None
        if describe(target) != record:
            raise BackupError(f"The backup is damaged: {name} does not match its checksum.")
        _sync(target)
    if manifest.state == "sqlite":
        check_whole(stage / STATE, seconds=float("inf"))
        forget_cluster(stage / STATE)
        for end in _SQLITE_ENDS[1:]:
            (stage / f"{STATE}{end}").unlink(missing_ok=True)
    _stage_blobs(stage, objects, source, manifest)
    return stage


def forget_cluster(state: Path) -> None:
    """Deletes the nodes and the identity of a cluster from a state.

    The nodes of the backup may belong to a cluster that still runs: a restored control would take
    them over, and end what it does not know. Servers enter themselves anew.
    """
    with closing(sqlite3.connect(state)) as database, database:
        found = database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('nodes', 'cluster')"
        )
        for (table,) in found.fetchall():
            database.execute(f"DELETE FROM {table}")
    _sync(state)


def _stage_blobs(stage: Path, objects: Path, source: Path, manifest: Manifest) -> None:
    blobs = objects / "blobs"
    blobs.mkdir(mode=0o700, parents=True)
    count = 0
    try:
        for blob in read_blobs(stage):
            if not BLOB_NAME.fullmatch(blob.id):
                raise BackupError(f"The backup is damaged: {LIST} names {blob.id!r}.")
            target = blob_path(blobs, blob.id)
            try:
                bring_file(
                    blob_path(source / BLOBS, blob.id), target, blob.size, blob.md5, verify=True
                )
            except FileNotFoundError:
                raise BackupError(f"The backup is incomplete: {blob.id} is missing.") from None
            count += 1
    except msgspec.MsgspecError as error:
        raise BackupError(f"The backup is damaged: {LIST} cannot be read: {error}") from error
    if count != manifest.objects:
        raise BackupError(f"The backup is damaged: {LIST} has {count} of {manifest.objects} files.")
    if manifest.state_id is not None:
        write_id(objects, manifest.state_id)
    for folder in blobs.iterdir():
        if folder.is_dir():
            sync_folder(folder)


def _move_aside(settings: Settings, home: Home) -> Path | None:
    """Moves the home's files aside; returns None if there were none.

    Raises BackupError if a file cannot be moved; all are then moved back.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    replaced = home.path / f"{REPLACED_PREFIX}{stamp}"
    file = sqlite_file(settings)
    # The state goes first: an interruption must not leave it without its files.
    first = [file.with_name(file.name + end) for end in _SQLITE_ENDS] if file else []
    present = [path for path in first if path.exists()]
    present += [path for path in _contents(home) if path not in (*present, home.objects)]
    objects = sorted(_contents_of_objects(home))
    if not present and not objects:
        return None
    _refuse_mounts([*present, *objects])
    replaced.mkdir(mode=0o700)
    moves = [
        (path, replaced / path.name)
        if path.parent == home.path
        else (path, path.with_name(f"{path.name}.{REPLACED_PREFIX}{stamp}"))
        for path in present
    ]
    folder = _folder_for_objects(home, replaced) if objects else replaced
    moves += [(path, folder / path.name) for path in objects]
    _move_all(moves)
    # First where the files are now, so that a loss of power leaves them in one of the places.
    for moved_to in {target.parent for _, target in moves} | {replaced}:
        sync_folder(moved_to)
    sync_folder(home.objects)
    sync_folder(home.path)
    return replaced


def _refuse_mounts(paths: list[Path]) -> None:
    for path in paths:
        if path.is_mount():
            raise BackupError(
                f"{path} is a mount point, which cannot be moved aside. Nothing was changed. "
                "Unmount it, or give another home with --home."
            )


def _folder_for_objects(home: Home, replaced: Path) -> Path:
    """Makes a folder for objects; if on another disk, it stays there, with a link in `aside`."""
    folder = home.objects / replaced.name
    folder.mkdir(mode=0o700)
    try:
        folder.rename(replaced / "objects")
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        (replaced / "objects").symlink_to(Path("..") / home.objects.name / folder.name)
        return folder
    return replaced / "objects"


def _move_all(moves: list[tuple[Path, Path]]) -> None:
    done: list[tuple[Path, Path]] = []
    try:
        for path, target in moves:
            path.rename(target)
            done.append((path, target))
    except OSError as error:
        for path, target in reversed(done):
            target.rename(path)
        raise BackupError(
            f"{error.filename} cannot be moved aside: {error.strerror}. "
            "All files are in their former places."
        ) from error


def _put_in_place(settings: Settings, home: Home, stage: Path) -> None:
    objects = home.objects / RESTORING
    for path in sorted(objects.iterdir()):
        target = home.objects / path.name
        for folder, _, _ in os.walk(target, topdown=False):
            os.rmdir(folder)  # its files were moved aside
        path.rename(target)
    objects.rmdir()
    sync_folder(home.objects)
    home_files = stage / HOME_FILES
    for path in sorted(home_files.iterdir()) if home_files.is_dir() else ():
        path.rename(home.path / path.name)
    sync_folder(home.path)
    file = sqlite_file(settings)
    if file is None:
        from sagehen.app.backup.postgres import load_dump

        load_dump(settings.state_url, stage / DUMP)
    else:
        _put_state(stage / STATE, file)
    shutil.rmtree(stage)
    sync_folder(home.path)


def _put_state(staged: Path, file: Path) -> None:
    if file.parent != staged.parent.parent:
        # The state may be on another disk, where renaming fails.
        draft = file.with_name(file.name + ".restoring")
        shutil.copyfile(staged, draft)
        _sync(draft)
        staged = draft
    for end in _SQLITE_ENDS[1:]:
        # SQLite would replay the old state's log.
        file.with_name(file.name + end).unlink(missing_ok=True)
    staged.rename(file)
    sync_folder(file.parent)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
