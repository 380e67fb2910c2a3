"""Uploads a job's model and other output, as archives or files."""

import errno
import gzip
import logging
import os
import shutil
import stat
import tarfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, cast

import msgspec

from sagehen.agent.artifacts.folders import remove_tree
from sagehen.agent.jobs.data.store_writes import PIECE_BYTES, check_key, put_stream, resolve
from sagehen.agent.jobs.data.transfers import Transfers
from sagehen.agent.jobs.disk_allowance import Allowance
from sagehen.agent.jobs.failures import JobFailed, upload_failed
from sagehen.agent.jobs.host_folders import HostPlace
from sagehen.frame.s3_locations import Location, parse_location

__all__ = ["JobOutputs", "LeftFile", "collect", "write_archive"]

log = logging.getLogger(__name__)

COMPRESSION = 4
"""of 9: half as fast as 1, nearly as small as 6"""
MADE_AT = 315_532_800
"""1980, the first year in zip files: equal files make equal archives"""
BUFFER_BYTES = 2**20


class LeftFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, folder or link to keep."""

    path: str
    source: Path
    """a link's target"""
    mode: int
    size: int = 0
    leads_to: str | None = None
    """the text of a link inside the folder"""

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode) and self.leads_to is None

    @property
    def has_bytes(self) -> bool:
        return stat.S_ISREG(self.mode)


def collect(folders: Sequence[tuple[Path, Path]]) -> list[LeftFile]:
    """Merges the hosts' files by path; the first host's file wins. Blocks.

    Args:
        folders: each host's, with its /opt/ml.
    """
    found: dict[str, LeftFile] = {}
    for folder, base in folders:
        _Walk(folder, base, found).run()
    if all(one.is_folder for one in found.values()):
        return []
    return [found[path] for path in sorted(found)]


class _Walk:
    """Does not follow links."""

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
        """Keeps a link that any container can follow."""
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
    """Writes a reproducible tar.gz. Raises OSError."""
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


_BY_THE_JOB = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP)
"""the job's own fault"""


class JobOutputs:
    """Uploads what all hosts of a job have left."""

    def __init__(self, places: Sequence[HostPlace], transfers: Transfers) -> None:
        self._places = places
        self._spec = places[0].spec
        self._transfers = transfers
        self._folder = parse_location(self._spec.output_uri.rstrip("/")).below(
            f"{self._spec.job_name}/output/"
        )

    async def upload(self) -> tuple[str, ...]:
        """Returns names below the job's folder in the store.

        Raises JobFailed (bad target, unreadable or too large file), JobLost or DiskFull.
        """
        left = await self._transfers.run(self._collect)
        self._check_size(left)
        names = [self._name(folder) for folder, files in left.items() if files]
        for folder, files in left.items():
            if files and self._spec.compress_output:
                work = partial(self._put_archive, files, self._folder.below(self._name(folder)))
                await self._transfers.insist(work)
            elif files:
                await self._put_files(files, self._folder.below(self._name(folder)))
        return tuple(names)

    def drop_others(self) -> None:
        """Removes inputs and temporary files, but no targets of links. Blocks."""
        try:
            left = self._collect()
        except JobFailed:
            return  # the upload reports why
        needed = [one.source for files in left.values() for one in files if one.has_bytes]
        for place in self._places:
            for folder in (place.inputs, place.tmp):
                real = os.path.realpath(folder)
                if not any(source.is_relative_to(real) for source in needed):
                    remove_tree(folder)

    def _name(self, folder: str) -> str:
        if not self._spec.compress_output:
            return f"{folder}/"
        return "model.tar.gz" if folder == "model" else "output.tar.gz"

    def _collect(self) -> dict[str, list[LeftFile]]:
        try:
            return {
                "model": collect([(place.model, place.base) for place in self._places]),
                "data": collect([(place.output, place.base) for place in self._places]),
            }
        except OSError as error:
            # A retry would fail alike: the code has ended.
            if error.errno in _BY_THE_JOB:
                why = f"{error.strerror}: {str(error.filename)[-200:]!r}"
                raise JobFailed(upload_failed(self._folder.url, why)) from error
            raise

    def _check_size(self, left: dict[str, list[LeftFile]]) -> None:
        size = sum(one.size for files in left.values() for one in files)
        hosts = len(self._places)
        Allowance(self._spec.volume_gb * hosts).check_used(size)

    def _put_archive(self, files: Sequence[LeftFile], location: Location) -> None:
        _check_readable(files, location)
        with put_stream(self._transfers.objects, location, self._transfers.check) as target:
            write_archive(files, target)

    async def _put_files(self, files: Sequence[LeftFile], folder: Location) -> None:
        files = [one for one in files if one.has_bytes]
        for one in files:
            check_key(folder.below(one.path))
        _check_readable(files, folder)
        await self._transfers.each(partial(self._put_file, folder), files)

    def _put_file(self, folder: Location, one: LeftFile) -> None:
        location = folder.below(one.path)
        with (
            one.source.open("rb") as file,
            put_stream(self._transfers.objects, location, self._transfers.check) as target,
        ):
            shutil.copyfileobj(file, target, PIECE_BYTES)


def _check_readable(files: Sequence[LeftFile], location: Location) -> None:
    """Raises now, because later errors may be temporary."""
    for one in files:
        try:
            if one.has_bytes:
                one.source.open("rb").close()
        except OSError as error:
            raise JobFailed(upload_failed(location.url, f"{one.path}: {error.strerror}")) from error
