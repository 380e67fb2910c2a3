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
from sagehen.agent.jobs.host_folders import HostPaths
from sagehen.frame.s3_locations import Location, parse_location

__all__ = ["JobOutputs", "OutputFile", "collect", "write_archive"]

log = logging.getLogger(__name__)

COMPRESSION = 4
"""of 9: half as fast as 1, nearly as small as 6"""
ENTRY_MTIME = 315_532_800
"""1980, the first year in zip files: equal files make equal archives"""
BUFFER_BYTES = 2**20


class OutputFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, folder or link to keep."""

    path: str
    source: Path
    """a link's target"""
    mode: int
    size: int = 0
    link_text: str | None = None
    """the text of a link inside the folder"""

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode) and self.link_text is None

    @property
    def is_regular(self) -> bool:
        return stat.S_ISREG(self.mode)


def collect(folders: Sequence[tuple[Path, Path]]) -> list[OutputFile]:
    """Merges the hosts' files by path; the first host's file wins. Blocks.

    Args:
        folders: each host's, with its /opt/ml.
    """
    files: dict[str, OutputFile] = {}
    for folder, base in folders:
        _Walk(folder, base, files).run()
    if all(file.is_folder for file in files.values()):
        return []
    return [files[path] for path in sorted(files)]


class _Walk:
    """Does not follow links."""

    def __init__(self, folder: Path, base: Path, files: dict[str, OutputFile]) -> None:
        self._folder = folder
        self._root = os.path.realpath(folder)
        self._base = base
        self._files = files

    def run(self) -> None:
        if not self._folder.is_dir():
            log.warning("%s is not a folder any more: nothing in it is uploaded.", self._folder)
            return
        pending = [""]
        while pending:
            parent = pending.pop()
            with os.scandir(self._folder / parent) as entries:
                for entry in entries:
                    file = self._describe(entry, f"{parent}/{entry.name}" if parent else entry.name)
                    if file is None:
                        log.warning(
                            "%s is not a file, folder or link that can be uploaded.", entry.path
                        )
                        continue
                    first = self._files.setdefault(file.path, file)
                    if file.is_folder and first.is_folder:
                        pending.append(file.path)

    def _describe(self, entry: os.DirEntry[str], path: str) -> OutputFile | None:
        info = entry.stat(follow_symlinks=False)
        source = Path(entry.path)
        if stat.S_ISLNK(info.st_mode):
            return self._describe_link(path, source)
        if stat.S_ISREG(info.st_mode):
            return OutputFile(path=path, source=source, mode=info.st_mode, size=info.st_size)
        if stat.S_ISDIR(info.st_mode):
            return OutputFile(path=path, source=source, mode=info.st_mode)
        return None

    def _describe_link(self, path: str, link: Path) -> OutputFile | None:
        """Keeps a link that any container can follow."""
        text, real = os.readlink(link), resolve(link, self._base)
        if real is None:
            return None
        info = os.stat(real)
        inside = real.startswith(self._root + os.sep)
        if inside and not os.path.isabs(text):
            return OutputFile(
                path=path, source=Path(real), mode=info.st_mode, size=info.st_size, link_text=text
            )
        if stat.S_ISREG(info.st_mode):
            return OutputFile(path=path, source=Path(real), mode=info.st_mode, size=info.st_size)
        return None


def write_archive(files: Sequence[OutputFile], target: IO[bytes]) -> None:
    """Writes a reproducible tar.gz. Raises OSError."""
    with (
        gzip.GzipFile("", "wb", COMPRESSION, cast("BinaryIO", target), mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", bufsize=BUFFER_BYTES) as tar,
    ):
        for file in files:
            _add_entry(tar, file)
            tar.members = []  # type: ignore[attr-defined]  # It remembers them all, for nobody.


def _add_entry(tar: tarfile.TarFile, file: OutputFile) -> None:
    entry = tarfile.TarInfo(file.path)
    entry.mtime = ENTRY_MTIME
    entry.mode = 0o755 if file.mode & stat.S_IXUSR else 0o644
    if file.link_text is not None:
        entry.type, entry.linkname = tarfile.SYMTYPE, file.link_text
        tar.addfile(entry)
    elif file.is_folder:
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
    else:
        entry.size = file.size
        with file.source.open("rb") as content:
            tar.addfile(entry, content)


_JOB_ERRNOS = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP)
"""the job's own fault"""


class JobOutputs:
    """Uploads what all hosts of a job have left."""

    def __init__(self, hosts: Sequence[HostPaths], transfers: Transfers) -> None:
        self._hosts = hosts
        self._spec = hosts[0].spec
        self._transfers = transfers
        self._folder = parse_location(self._spec.output_uri.rstrip("/")).below(
            f"{self._spec.job_name}/output/"
        )

    async def upload(self) -> tuple[str, ...]:
        """Returns names below the job's folder in the store.

        Raises JobFailed (bad target, unreadable or too large file), JobLost or DiskFull.
        """
        files_by_folder = await self._transfers.run(self._collect)
        self._check_size(files_by_folder)
        names = [self._name(folder) for folder, files in files_by_folder.items() if files]
        for folder, files in files_by_folder.items():
            if files and self._spec.compress_output:
                work = partial(self._put_archive, files, self._folder.below(self._name(folder)))
                await self._transfers.run_with_retries(work)
            elif files:
                await self._put_files(files, self._folder.below(self._name(folder)))
        return tuple(names)

    def drop_others(self) -> None:
        """Removes inputs and temporary files, but no targets of links. Blocks."""
        try:
            files_by_folder = self._collect()
        except JobFailed:
            return  # the upload reports why
        needed = [
            file.source for files in files_by_folder.values() for file in files if file.is_regular
        ]
        for paths in self._hosts:
            for folder in (paths.inputs, paths.tmp):
                real = os.path.realpath(folder)
                if not any(source.is_relative_to(real) for source in needed):
                    remove_tree(folder)

    def _name(self, folder: str) -> str:
        if not self._spec.compress_output:
            return f"{folder}/"
        return "model.tar.gz" if folder == "model" else "output.tar.gz"

    def _collect(self) -> dict[str, list[OutputFile]]:
        try:
            return {
                "model": collect([(paths.model, paths.base) for paths in self._hosts]),
                "data": collect([(paths.output, paths.base) for paths in self._hosts]),
            }
        except OSError as error:
            # A retry would fail alike: the code has ended.
            if error.errno in _JOB_ERRNOS:
                reason = f"{error.strerror}: {str(error.filename)[-200:]!r}"
                raise JobFailed(upload_failed(self._folder.url, reason)) from error
            raise

    def _check_size(self, files_by_folder: dict[str, list[OutputFile]]) -> None:
        size = sum(file.size for files in files_by_folder.values() for file in files)
        host_count = len(self._hosts)
        Allowance(self._spec.volume_gb * host_count).check_used(size)

    def _put_archive(self, files: Sequence[OutputFile], location: Location) -> None:
        _check_readable(files, location)
        with put_stream(self._transfers.objects, location, self._transfers.check) as target:
            write_archive(files, target)

    async def _put_files(self, files: Sequence[OutputFile], folder: Location) -> None:
        files = [file for file in files if file.is_regular]
        for file in files:
            check_key(folder.below(file.path))
        _check_readable(files, folder)
        await self._transfers.for_each(partial(self._put_file, folder), files)

    def _put_file(self, folder: Location, file: OutputFile) -> None:
        location = folder.below(file.path)
        with (
            file.source.open("rb") as content,
            put_stream(self._transfers.objects, location, self._transfers.check) as target,
        ):
            shutil.copyfileobj(content, target, PIECE_BYTES)


def _check_readable(files: Sequence[OutputFile], location: Location) -> None:
    """Raises now, because later errors may be temporary."""
    for file in files:
        try:
            if file.is_regular:
                file.source.open("rb").close()
        except OSError as error:
            raise JobFailed(
                upload_failed(location.url, f"{file.path}: {error.strerror}")
            ) from error
