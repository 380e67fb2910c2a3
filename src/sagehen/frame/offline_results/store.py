"""The store of offline results: an SQLite file with the answers by key.

A store is written once, under another name, and renamed when it is complete. Nobody changes it
after that, so readers need no locks, and a newer store is another file.
"""

import contextlib
import os
import sqlite3
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import msgspec

from sagehen.base.errors import SagehenError
from sagehen.base.files import sync_folder

__all__ = [
    "BrokenRows",
    "ResultStore",
    "StoreError",
    "StoreInfo",
    "copy_mark",
    "link_store",
    "read_ahead",
    "remove_drafts",
    "write_store",
]

_APPLICATION_ID = 0x53474852
"""SGHR, in the header of the file"""
_FORMAT = 1
_SORTING_KIB = 32 * 1024
"""of memory, and the same again for pages; the rest is sorted in temporary files"""
_STAGING_KIB = 2 * 1024
"""of memory for rows that are written, and read, one after the other"""
_READER_CACHE_KIB = 2 * 1024
"""of memory, for each store and process. The file is read and not mapped: a disk that fails gives
an error, where a mapped file would end the process by SIGBUS."""


_PIECE_BYTES = 2**20
_READ_AHEAD_SHARE = 0.5
"""of the memory that programs could have now"""


class StoreError(SagehenError):
    """The file is no store of offline results, is damaged, or cannot be read or written."""


@dataclass
class BrokenRows:
    """Rows that cannot be read, while a store is written from the others."""

    count: int = 0
    examples: list[str] = field(default_factory=list)
    """the first ones, with the reasons"""


class StoreInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The description in a store."""

    fingerprint: str
    """of the definition and of all objects that were read"""
    keys: int
    rows: int
    """of the objects; of rows with the same key the last one counts"""
    built_at: float
    """seconds since the epoch"""
    broken_rows: int = 0
    """that were left out"""
    broken_examples: tuple[str, ...] = ()


class ResultStore:
    """A store that is open for reading, in one thread."""

    def __init__(self, path: Path) -> None:
        """Raises StoreError."""
        self.path = path
        try:
            self._connection = _connect(path, "mode=ro&immutable=1")
        except sqlite3.Error as error:
            raise _unreadable(path, error) from error
        try:
            self.info = self._check()
        except BaseException:
            self._connection.close()
            raise
        self._execute = self._connection.execute
        # Requests may hold a store that is no longer routed: the last one closes it.
        weakref.finalize(self, self._connection.close)

    def get(self, key: bytes) -> bytes | None:
        """Raises StoreError."""
        try:
            row = self._execute("SELECT answer FROM results WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            raise _unreadable(self.path, error) from error
        return None if row is None else row[0]

    def close(self) -> None:
        self._connection.close()

    def _check(self) -> StoreInfo:
        connection, path = self._connection, self.path
        try:
            if _pragma(connection, "application_id") != _APPLICATION_ID:
                raise StoreError(f"{path} is not a store of offline results.")
            version = _pragma(connection, "user_version")
            if version != _FORMAT:
                raise StoreError(
                    f"{path} is a store of format {version}; this Sagehen reads {_FORMAT}."
                )
            size = _pragma(connection, "page_count") * _pragma(connection, "page_size")
            if path.stat().st_size != size:
                raise StoreError(f"{path} is damaged: it should have {size} bytes.")
            connection.execute(f"PRAGMA cache_size = -{_READER_CACHE_KIB}")
            (info,) = connection.execute("SELECT info FROM about").fetchone()
            return msgspec.json.decode(info, type=StoreInfo)
        except (sqlite3.Error, OSError, TypeError, msgspec.MsgspecError) as error:
            raise _unreadable(path, error) from error


def write_store(
    path: Path,
    rows: Iterable[tuple[bytes, bytes]],
    fingerprint: str,
    now: float,
    broken: BrokenRows | None = None,
) -> StoreInfo:
    """Writes a store of keys and answers in constant memory; it is durable on return.

    Of rows with the same key the last one counts. `broken` may grow while `rows` are read. A
    process that is killed leaves its drafts, which `remove_drafts` removes. Changes where SQLite
    sorts in this process: beside `path`, as /var/tmp may be small. Raises StoreError, and what
    `rows` raises.
    """
    draft, staging = _drafts(path)
    try:
        remove_drafts(path)
        connection = _connect(draft, "mode=rwc")
        try:
            info = _write(connection, staging, rows, fingerprint, now, broken or BrokenRows())
        finally:
            connection.close()
        _publish(draft, path)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"The store {path} cannot be written: {error}") from error
    finally:
        remove_drafts(path)
    return info


def link_store(existing: Path, path: Path) -> None:
    """Gives a store another name. Raises StoreError."""
    draft, _ = _drafts(path)
    try:
        draft.unlink(missing_ok=True)
        os.link(existing, draft)
        _publish(draft, path)
    except OSError as error:
        raise StoreError(f"The store {path} cannot be written: {error}") from error


def read_ahead(path: Path) -> None:
    """Reads a store once, so that the kernel has it in its cache. Blocks.

    A store that would take much of the memory is left alone: it would displace what is in use.
    """
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= _READ_AHEAD_SHARE * _available_bytes():
            # Not by posix_fadvise: the kernel reads some 100 KiB at its advice, and no more.
            piece = bytearray(_PIECE_BYTES)
            while file.readinto(piece):
                pass


def _available_bytes() -> int:
    """Raises OSError or ValueError."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, kib = line.partition(":")
        if name == "MemAvailable":
            return int(kib.removesuffix("kB")) * 1024
    return 0


def copy_mark(path: Path) -> Path:
    """Returns the file that marks a store as a copy of another node's."""
    return path.with_name(f"{path.name}.copied")


def remove_drafts(path: Path) -> None:
    for draft in _drafts(path):
        draft.unlink(missing_ok=True)


def _drafts(path: Path) -> tuple[Path, Path]:
    return path.with_name(path.name + ".new"), path.with_name(path.name + ".rows")


def _publish(draft: Path, path: Path) -> None:
    """Renames a complete draft, and survives the loss of power."""
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def _write(
    connection: sqlite3.Connection,
    staging: Path,
    rows: Iterable[tuple[bytes, bytes]],
    fingerprint: str,
    now: float,
    broken: BrokenRows,
) -> StoreInfo:
    """Writes the rows as they come, then sorted: a tree that grows at its end alone is quick to
    write and has no gaps."""
    execute = connection.execute
    execute("ATTACH ? AS staging", (str(staging),))
    for schema, cache_kib in (("main", _SORTING_KIB), ("staging", _STAGING_KIB)):
        # A draft that is not complete is thrown away, so that it needs no journal.
        execute(f"PRAGMA {schema}.journal_mode = OFF")
        execute(f"PRAGMA {schema}.synchronous = OFF")
        execute(f"PRAGMA {schema}.cache_size = -{cache_kib}")
    execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    execute(f"PRAGMA user_version = {_FORMAT}")
    execute("PRAGMA temp_store = FILE")
    execute(f"PRAGMA temp_store_directory = {_literal(str(staging.parent))}")
    execute("CREATE TABLE staging.staged (key BLOB, answer BLOB)")
    execute("CREATE TABLE about (info BLOB)")
    execute("CREATE TABLE results (key BLOB PRIMARY KEY, answer BLOB) WITHOUT ROWID")
    execute("BEGIN")
    connection.executemany("INSERT INTO staging.staged VALUES (?, ?)", rows)
    execute(
        "INSERT OR REPLACE INTO results SELECT key, answer FROM staging.staged ORDER BY key, rowid"
    )
    info = StoreInfo(
        fingerprint=fingerprint,
        keys=_number(connection, "SELECT count(*) FROM results"),
        rows=_number(connection, "SELECT count(*) FROM staging.staged"),
        built_at=now,
        broken_rows=broken.count,
        broken_examples=tuple(broken.examples),
    )
    execute("INSERT INTO about VALUES (?)", (msgspec.json.encode(info),))
    execute("COMMIT")
    return info


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(path))}?{mode}"
    # The loop's thread reads; a test or control's worker thread may have opened it.
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return _number(connection, f"PRAGMA {name}")


def _number(connection: sqlite3.Connection, query: str) -> int:
    (number,) = connection.execute(query).fetchone()
    return int(number)


def _unreadable(path: Path, error: Exception) -> StoreError:
    return StoreError(f"The store of offline results {path} cannot be read: {error}")
