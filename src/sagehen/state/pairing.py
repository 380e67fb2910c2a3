"""Pairs the state with the folder of object files by an id, and holds off removals during a backup.

The id is in the state's table `state_identity` and in the file `blobs/id`; a start compares both
first. A foreign or empty state is refused beside files: it would take all for garbage.

A backup consists of a snapshot of the state and the files that it names. While the backup holds a
lock, removed files go to the trash. The kernel frees the lock when the process ends.

Does not import SQLAlchemy, as most starts need none.
"""

import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from sagehen.base.errors import BackupError, StateError
from sagehen.base.files import sync_folder
from sagehen.base.home import RESTORING

__all__ = [
    "BLOB_NAME",
    "Query",
    "adopt",
    "check_pair",
    "folder_id",
    "may_remove",
    "pair",
    "removals_held_off",
    "state_id",
    "write_id",
]

Query = Callable[[str], Sequence[Sequence[Any]]]
"""runs SQL; ids in it are checked hexadecimal digits"""

BLOB_NAME = re.compile(r"[0-9a-f]{32}")
_ID = re.compile(r"[0-9a-f]{32}")
_BATCH = 500
_ADOPTED = "adopted"


@dataclass(frozen=True)
class _Facts:
    state_id: str | None
    folder_id: str | None
    is_empty: bool
    """no tables: the state is new or lost"""
    is_adopted: bool
    """by `sagehen adopt`, which accepts any files"""
    has_small_only: bool
    """all objects are stored in rows"""
    names_files: bool
    """some row names a file"""
    has_files: bool
    """including the trash"""
    shares_file: bool
    """a row names a file of the folder; names are 128 random bits, so the two were once a pair"""


def check_pair(query: Query, tables: set[str], objects: Path, where: str, *, remote: bool) -> None:
    """Checks, without a change, that the state and the files are or may become a pair.

    Args:
        where: the state's address, for messages.
        remote: objects are stored elsewhere; only parts of uploads are here.
    Raises:
        StateError: they do not belong together; says what to do.
    """
    facts = _look(query, tables, objects)
    if facts.is_empty and (objects.parent / RESTORING).exists():
        raise StateError(
            f"A restore into {objects.parent} was interrupted before it restored the state "
            f"{where}. Run `sagehen restore` again; or, to start with a new state, remove "
            f"{objects.parent / RESTORING} and {objects / RESTORING}. Nothing was changed."
        )
    if facts.is_adopted and facts.state_id == facts.folder_id:
        return
    refusal = _mismatch(facts, objects, where)
    is_new = facts.folder_id is None and not facts.has_files
    if refusal is None and facts.names_files and is_new and not remote:
        refusal = (
            f"The state {where} has objects whose files should be in {objects}, but no file is "
            "there. Is a disk not mounted?"
        )
    if refusal is not None:
        raise StateError(f"{refusal} Nothing was changed. {_what_to_do(facts, objects)}")


def pair(query: Query, objects: Path) -> None:
    """Gives both sides the same id. Call it only after `check_pair`.

    The state comes first: a folder's id then proves that a state had it.

    Raises StateError if the state got another id meanwhile.
    """
    id_of_folder = folder_id(objects)
    id_of_state = _give_id(query, id_of_folder)
    if id_of_folder is None:
        write_id(objects, id_of_state)
    elif id_of_folder != id_of_state:
        raise StateError(
            f"The objects in {objects} belong to another state: another server has just started "
            "on this one. Nothing was changed."
        )


def adopt(query: Query, objects: Path) -> tuple[int, int]:
    """Pairs without a check; returns the numbers of files without a row and of rows
    without a file."""
    write_id(objects, _give_id(query, None), _ADOPTED)
    file_count = named_count = 0
    for batch in _batches(_file_names(objects)):
        file_count += len(batch)
        named_count += len(_named(query, batch))
    ((rows,),) = query("SELECT count(*) FROM blobs")
    return file_count - named_count, int(rows) - named_count


def _give_id(query: Query, preferred: str | None) -> str:
    """Returns the state's id; sets a missing one."""
    current = state_id(query)
    if current is not None:
        return current
    new = preferred or secrets.token_hex(16)
    # Of several homes starting at once, the first sets the id.
    query(
        f"INSERT INTO state_identity (number, state_id) VALUES (1, '{new}') ON CONFLICT DO NOTHING"
    )
    return state_id(query) or new


def state_id(query: Query) -> str | None:
    rows = query("SELECT state_id FROM state_identity")
    return str(rows[0][0]) if rows else None


def folder_id(objects: Path) -> str | None:
    """Raises StateError where the file is damaged."""
    return _read_id(objects)[0]


def _read_id(objects: Path) -> tuple[str | None, bool]:
    """Returns the id, and whether it was adopted."""
    path = _id_file(objects)
    try:
        text, _, mark = path.read_text("ascii").strip().partition("\n")
    except (FileNotFoundError, NotADirectoryError):
        return None, False
    except (OSError, UnicodeDecodeError) as error:
        raise StateError(
            f"The id of the objects in {path} cannot be read ({error}). {_REMOVE_ID}"
        ) from error
    if not _ID.fullmatch(text):
        raise StateError(f"The id of the objects in {path} is damaged. {_REMOVE_ID}")
    return text, mark == _ADOPTED


_REMOVE_ID = (
    "Remove that file: the next start makes it again, if it finds that the state and the objects "
    "belong together."
)


def _look(query: Query, tables: set[str], objects: Path) -> _Facts:
    has_rows = "blobs" in tables
    names = _file_names(objects)
    first = list(islice(names, 1))
    names_files = has_rows and bool(query("SELECT 1 FROM blobs LIMIT 1"))
    has_objects = "objects" in tables and bool(query("SELECT 1 FROM objects LIMIT 1"))
    own_id, is_adopted = _read_id(objects)
    return _Facts(
        state_id=state_id(query) if "state_identity" in tables else None,
        folder_id=own_id,
        is_adopted=is_adopted,
        is_empty=not has_rows,
        has_small_only=has_objects and not names_files,
        names_files=names_files,
        has_files=bool(first),
        shares_file=names_files
        and any(_named(query, batch) for batch in _batches(chain(first, names))),
    )


def _mismatch(facts: _Facts, objects: Path, where: str) -> str | None:
    if facts.state_id and facts.folder_id and facts.state_id != facts.folder_id:
        return f"The objects in {objects} belong to another state than {where}."
    if facts.is_empty and (facts.folder_id or facts.has_files):
        full = "there are files of objects in" if facts.has_files else "a state was in use with"
        return f"The state {where} is empty, but {full} {objects}."
    if facts.state_id and facts.folder_id:
        return None  # equal ids, whatever happened to the files since
    if facts.folder_id and not facts.state_id and not facts.shares_file:
        return f"Nothing shows that the objects in {objects} belong to the state {where}."
    if facts.has_small_only and not facts.state_id:
        return None  # from before there were ids; the unnamed files go to the trash
    if facts.has_files and not facts.shares_file and not facts.folder_id:
        return f"The state {where} knows none of the objects' files in {objects}."
    return None


def _what_to_do(facts: _Facts, objects: Path) -> str:
    home = objects.parent
    advice = [
        "Correct database_url or --home, if another state was meant",
        f"restore a backup with `sagehen restore BACKUP --home {home} --replace`",
        "start afresh with another --home",
    ]
    loses = " (files that it does not know go to the trash)" if facts.has_files else ""
    advice.append(f"or keep this state{loses} with `sagehen adopt --home {home}`")
    return "; ".join(advice) + "."


def _named(query: Query, names: Sequence[str]) -> set[str]:
    listed = ", ".join(f"'{name}'" for name in names)
    return {
        str(name) for (name,) in query(f"SELECT blob_id FROM blobs WHERE blob_id IN ({listed})")
    }


def _file_names(objects: Path) -> Iterator[str]:
    """Includes the trash."""
    for folder in (objects / "trash", objects / "blobs"):
        for _, _, names in os.walk(folder):
            yield from (name for name in names if BLOB_NAME.fullmatch(name))


def _batches(names: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(names, _BATCH)):
        yield batch


def _id_file(objects: Path) -> Path:
    # A copied or mounted folder brings its id along.
    return objects / "blobs" / "id"


def write_id(objects: Path, value: str, mark: str = "") -> None:
    path = _id_file(objects)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    with draft.open("w") as file:
        file.write(f"{value}\n{mark}\n" if mark else f"{value}\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


_WAIT_SECONDS = 60.0
_LOOK_SECONDS = 0.005
"""seconds, like a removal: finds the gaps between removals"""


@contextmanager
def may_remove(objects: Path) -> Iterator[bool]:
    """Yields whether files may be deleted for good."""
    # Opened each time: threads with a common descriptor would share, and end, each other's lock.
    descriptor = _open(objects)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


@contextmanager
def removals_held_off(objects: Path, wait_seconds: float | None = None) -> Iterator[None]:
    """Waits for removals to end and blocks new ones. Raises BackupError if there was no gap."""
    descriptor = _open(objects)
    try:
        _lock(descriptor, objects, _WAIT_SECONDS if wait_seconds is None else wait_seconds)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, objects: Path, wait_seconds: float) -> None:
    # The kernel prefers shared locks: the wait could be endless.
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BackupError(
                    f"For {wait_seconds:g} seconds files in {objects} were being removed without "
                    "a pause, or another backup was being made. Try again later."
                ) from None
            time.sleep(_LOOK_SECONDS)
        else:
            return


def _open(objects: Path) -> int:
    return os.open(objects / "backup.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
