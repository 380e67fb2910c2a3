"""An unpacked artifact as a stream of bytes: a tar archive that is the same for the same content.

Order, modes and times depend on nothing else, so that the digest of the stream is that of the
artifact on each node. Folders are in the stream only where they are empty.
"""

import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["tree_digest", "tree_stream"]

PIECE_BYTES = 2**20
_BLOCK = tarfile.BLOCKSIZE


def tree_digest(folder: Path) -> str:
    """Blocks."""
    digest = hashlib.sha256()
    for piece in tree_stream(folder):
        digest.update(piece)
    return digest.hexdigest()


def tree_stream(folder: Path) -> Iterator[bytes]:
    """Yields pieces of about PIECE_BYTES, and each file in its order. Blocks. Raises OSError, also
    where a file changes its size meanwhile."""
    buffer = bytearray()
    for part in _parts(folder):
        if buffer and len(buffer) + len(part) > PIECE_BYTES:
            yield bytes(buffer)
            buffer.clear()
        buffer += part
    # As tar ends: two empty blocks.
    yield bytes(buffer) + bytes(2 * _BLOCK)


def _parts(folder: Path) -> Iterator[bytes]:
    links: dict[tuple[int, int], str] = {}
    """the first name of a file with several, by device and inode"""
    for name in _names(os.fspath(folder), ""):
        path = os.path.join(folder, name)
        status = os.lstat(path)
        entry = tarfile.TarInfo(name)
        inode = (status.st_dev, status.st_ino)
        if stat.S_ISLNK(status.st_mode):
            entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
        elif stat.S_ISDIR(status.st_mode):
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        elif inode in links:
            entry.type, entry.linkname = tarfile.LNKTYPE, links[inode]
        else:
            links[inode] = name
            entry.size = status.st_size
            entry.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
        yield entry.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
        if entry.size:
            yield from _content(path, entry.size)


def _names(folder: str, below: str) -> Iterator[str]:
    """Yields the relative paths of everything but folders that hold something."""
    with os.scandir(os.path.join(folder, below)) as entries:
        found = sorted(entries, key=lambda entry: os.fsencode(entry.name))
    for entry in found:
        name = f"{below}/{entry.name}" if below else entry.name
        if not entry.is_dir(follow_symlinks=False):
            yield name
            continue
        is_empty = True
        for inside in _names(folder, name):
            is_empty = False
            yield inside
        if is_empty:
            yield name


def _content(path: str, size: int) -> Iterator[bytes]:
    remaining = size
    with open(path, "rb", buffering=0) as file:
        while remaining:
            piece = file.read(min(PIECE_BYTES, remaining))
            if not piece:
                raise OSError(f"{path} became shorter while it was read.")
            remaining -= len(piece)
            yield piece
    if padding := -size % _BLOCK:
        yield bytes(padding)
