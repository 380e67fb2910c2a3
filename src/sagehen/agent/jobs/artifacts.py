"""The files that hosts leave in a folder, and the archive that is made of them. Blocks."""

import gzip
import logging
import os
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, BinaryIO, cast

import msgspec

from sagehen.agent.jobs.links import resolve

__all__ = ["LeftFile", "collect", "write_archive"]

log = logging.getLogger(__name__)

COMPRESSION = 4
"""Of 9: half as quick as 1, and nearly as small as 6."""
MADE_AT = 315_532_800
"""1980, the first year that a zip file can tell: equal files make equal archives."""
BUFFER_BYTES = 2**20


class LeftFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, folder or link that is to be kept."""

    path: str
    """Below the folder."""
    source: Path
    """Where its bytes are; of a link, where it leads."""
    mode: int
    size: int = 0
    leads_to: str | None = None
    """Set of a link to something in the folder: what it says."""

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode) and self.leads_to is None

    @property
    def has_bytes(self) -> bool:
        """Of its own, or as a link."""
        return stat.S_ISREG(self.mode)


def collect(folders: Sequence[tuple[Path, Path]]) -> list[LeftFile]:
    """What all hosts left, by path; of two with the same, the first host's.

    Args:
        folders: of each host, with what is its /opt/ml.
    """
    found: dict[str, LeftFile] = {}
    for folder, base in folders:
        _Walk(folder, base, found).run()
    if all(one.is_folder for one in found.values()):
        return []
    return [found[path] for path in sorted(found)]


class _Walk:
    """Through one host's folder, without following links."""

    def __init__(self, folder: Path, base: Path, found: dict[str, LeftFile]) -> None:
        self._folder = folder
        self._root = os.path.realpath(folder)
        self._base = base
        self._found = found

    def run(self) -> None:
        if not self._folder.is_dir():
            log.warning("%s is no folder any more: nothing of it is kept.", self._folder)
            return
        left = [""]
        while left:
            above = left.pop()
            with os.scandir(self._folder / above) as entries:
                for entry in entries:
                    one = self._describe(entry, f"{above}/{entry.name}" if above else entry.name)
                    if one is None:
                        log.warning("%s is no file that can be kept.", entry.path)
                        continue
                    first = self._found.setdefault(one.path, one)
                    if one.is_folder and first.is_folder:
                        left.append(one.path)

    def _describe(self, entry: os.DirEntry[str], path: str) -> LeftFile | None:
        info = entry.stat(follow_symlinks=False)
        source = Path(entry.path)
        if stat.S_ISLNK(info.st_mode):
            return self._describe_link(path, source)
        if stat.S_ISREG(info.st_mode):
            return LeftFile(path=path, source=source, mode=info.st_mode, size=info.st_size)
        if stat.S_ISDIR(info.st_mode):
            return LeftFile(path=path, source=source, mode=info.st_mode)
        return None

    def _describe_link(self, path: str, link: Path) -> LeftFile | None:
        """As a link, where it is one that any container can follow; else what it leads to."""
        said, real = os.readlink(link), resolve(link, self._base)
        if real is None:
            return None
        info = os.stat(real)
        inside = real.startswith(self._root + os.sep)
        if inside and not os.path.isabs(said):
            return LeftFile(
                path=path, source=Path(real), mode=info.st_mode, size=info.st_size, leads_to=said
            )
        if stat.S_ISREG(info.st_mode):
            return LeftFile(path=path, source=Path(real), mode=info.st_mode, size=info.st_size)
        return None


def write_archive(files: Sequence[LeftFile], target: IO[bytes]) -> None:
    """A tar.gz of them, the same whenever and by whomever it is made.

    Raises:
        OSError: one cannot be read.
    """
    with (
        gzip.GzipFile("", "wb", COMPRESSION, cast("BinaryIO", target), mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", bufsize=BUFFER_BYTES) as tar,
    ):
        for one in files:
            _add(tar, one)
            tar.members = []  # type: ignore[attr-defined]  # It remembers them all, for nobody.


def _add(tar: tarfile.TarFile, one: LeftFile) -> None:
    entry = tarfile.TarInfo(one.path)
    entry.mtime = MADE_AT
    entry.mode = 0o755 if one.mode & stat.S_IXUSR else 0o644
    if one.leads_to is not None:
        entry.type, entry.linkname = tarfile.SYMTYPE, one.leads_to
        tar.addfile(entry)
    elif one.is_folder:
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
    else:
        entry.size = one.size
        with one.source.open("rb") as file:
            tar.addfile(entry, file)
