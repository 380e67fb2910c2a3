"""What a disk holds after a power loss at any moment: what was synced, and no more.

A program runs with `power_loss.c` preloaded, which journals what it does to files. `Disk` applies
the journal. Of a file it keeps what was written before the file's last sync; of a folder, the
entries at its last sync. This is less than most file systems keep: ext4 writes the entry of a new
file when the file is synced.
"""

import random
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

__all__ = ["Disk", "Kind", "Record", "build_library", "keep_none", "keep_some", "read_journal"]

_HEAD = struct.Struct("=IIQqII")
Keep = Callable[[], bool]
"""decides whether a change that was not synced has reached the disk all the same"""


class Kind(IntEnum):
    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    SYNC = 4
    RENAME = 5
    LINK = 6
    UNLINK = 7
    MKDIR = 8
    RMDIR = 9


class Record(NamedTuple):
    """One call, after it has been made."""

    end: int
    """bytes of the journal, with this record"""
    kind: Kind
    inode: int
    offset: int
    """of what is written; or the new size"""
    first: bytes
    """a path, or the data"""
    second: bytes
    """the other path"""


def build_library(folder: Path) -> Path:
    """Compiles the library to preload."""
    library = folder / "power_loss.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"],
        check=True,
        capture_output=True,
    )
    return library


def read_journal(journal: bytes, at: int, until: int) -> Iterator[Record]:
    """Yields the records from `at`, which is the start of one, that end before `until`."""
    while at + _HEAD.size <= until and at + _HEAD.unpack_from(journal, at)[0] <= until:
        size, kind, inode, offset, first, second = _HEAD.unpack_from(journal, at)
        start, middle = at + _HEAD.size, at + _HEAD.size + first
        at += size
        yield Record(
            at, Kind(kind), inode, offset, journal[start:middle], journal[middle : middle + second]
        )


@dataclass
class _File:
    content: bytearray = field(default_factory=bytearray)
    """synced"""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """offset and data; or a new size, and None"""

    def after(self, keep: Keep) -> bytearray:
        content = self.content if not self.pending else bytearray(self.content)
        for offset, data in self.pending:
            if keep():
                _change(content, offset, data)
        return content

    def sync(self) -> None:
        for offset, data in self.pending:
            _change(self.content, offset, data)
        self.pending.clear()


def _change(content: bytearray, offset: int, data: bytes | None) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    if data is None:
        del content[offset:]
    else:
        content[offset : offset + len(data)] = data


@dataclass
class _Folder:
    entries: dict[str, "_File | _Folder"] = field(default_factory=dict)
    """synced"""
    pending: list[tuple[str, "_File | _Folder | None"]] = field(default_factory=list)
    """names, and what they lead to now"""
    current: dict[str, "_File | _Folder"] = field(default_factory=dict)

    def set(self, name: str, entry: "_File | _Folder | None") -> None:
        self.pending.append((name, entry))
        if entry is None:
            self.current.pop(name, None)
        else:
            self.current[name] = entry

    def after(self, keep: Keep) -> dict[str, "_File | _Folder"]:
        entries = dict(self.entries)
        for name, entry in self.pending:
            if keep():
                if entry is None:
                    entries.pop(name, None)
                else:
                    entries[name] = entry
        return entries

    def sync(self) -> None:
        self.entries = dict(self.current)
        self.pending.clear()


class Disk:
    """One folder of a disk. It is empty before the first record.

    Args:
        root: as the program names it; without links.
    """

    def __init__(self, root: Path) -> None:
        self._root = _Folder()
        self._path = root
        self._inodes: dict[int, _File | _Folder] = {root.stat().st_ino: self._root}

    def apply(self, record: Record) -> None:
        match record.kind:
            case Kind.CREATE | Kind.MKDIR:
                self._add(record)
            case Kind.WRITE | Kind.TRUNCATE:
                file = self._inodes.get(record.inode)
                if isinstance(file, _File):
                    data = record.first if record.kind is Kind.WRITE else None
                    file.pending.append((record.offset, data))
            case Kind.SYNC:
                if (entry := self._inodes.get(record.inode)) is not None:
                    entry.sync()
            case Kind.RENAME | Kind.LINK:
                self._move(record)
            case Kind.UNLINK | Kind.RMDIR:
                if (place := self._find(record.first)) is not None:
                    place[0].set(place[1], None)

    def write_to(self, target: Path, keep: Keep) -> None:
        """Writes what is left after a power loss now into the new folder `target`."""
        self._write(self._root, target, keep)

    def _write(self, folder: _Folder, target: Path, keep: Keep) -> None:
        target.mkdir(mode=0o700)
        for name, entry in folder.after(keep).items():
            if isinstance(entry, _Folder):
                self._write(entry, target / name, keep)
            else:
                (target / name).write_bytes(entry.after(keep))

    def _add(self, record: Record) -> None:
        entry = _File() if record.kind is Kind.CREATE else _Folder()
        # Also outside the root: the number may have been that of a file inside.
        self._inodes[record.inode] = entry
        if (place := self._find(record.first)) is not None:
            place[0].set(place[1], entry)

    def _move(self, record: Record) -> None:
        source, target = self._find(record.first), self._find(record.second)
        entry = source[0].current.get(source[1]) if source is not None else None
        if target is not None and entry is not None:
            target[0].set(target[1], entry)
        if source is not None and record.kind is Kind.RENAME:
            source[0].set(source[1], None)

    def _find(self, path: bytes) -> tuple[_Folder, str] | None:
        """Returns the folder and the name of a path; None outside the root."""
        try:
            *folders, name = Path(path.decode()).relative_to(self._path).parts
        except ValueError:
            return None
        folder = self._root
        for part in folders:
            below = folder.current.get(part)
            if not isinstance(below, _Folder):
                return None
            folder = below
        return folder, name


def keep_none() -> bool:
    """Nothing that was not synced is left."""
    return False


def keep_some(seed: int) -> Keep:
    """Half of what was not synced, at random: a disk writes in an order of its own."""
    chance = random.Random(seed)
    return lambda: chance.random() < 0.5
