"""Keeps one host's checkpoints in the object store.

The store always holds the files of one moment: only whole files go up, older before newer, and
deletions follow all uploads.
"""

import errno
import logging
import os
import signal
import stat
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from sagehen.agent.jobs.data.downloads import download
from sagehen.agent.jobs.data.inputs import InputFile, list_below
from sagehen.agent.jobs.data.store_writes import (
    PIECE_BYTES,
    check_key,
    is_being_written,
    is_only_appended_to,
    put_stream,
    resolve,
)
from sagehen.agent.jobs.data.transfers import Transfers
from sagehen.agent.jobs.disk_allowance import Allowance
from sagehen.agent.jobs.failures import JobFailed, download_failed
from sagehen.base.clock import Clock
from sagehen.base.errors import Unavailable
from sagehen.base.retry import backoff_seconds
from sagehen.frame.s3_locations import Location
from sagehen.services.s3.storage.errors import NoSuchBucket

__all__ = ["Checkpoints", "FileSignature"]

log = logging.getLogger(__name__)

MAX_PAUSE_SECONDS = 60.0
PAUSE_PER_PASS = 5
"""times as long as a pass took"""
DELETE_BATCH_KEYS = 1000
MAX_SCANS = 5
"""then a constantly changing file is stored"""


class FileSignature(msgspec.Struct, frozen=True, order=True):
    """The state of a file: changes with its content; ordered by time."""

    mtime_ns: int
    size: int
    inode: int


class _File(msgspec.Struct, frozen=True):
    path: str
    source: Path
    signature: FileSignature


class Checkpoints:
    """One host's checkpoints.

    Args:
        base: what its container sees as /opt/ml.
        location: shared by all hosts.
        pause_seconds: between looks.
    """

    def __init__(
        self,
        folder: Path,
        base: Path,
        location: Location,
        transfers: Transfers,
        clock: Clock,
        pause_seconds: float,
    ) -> None:
        self._folder = folder
        self._base = base
        self._location = location
        self._transfers = transfers
        self._clock = clock
        self._pause_seconds = pause_seconds
        self._stored: dict[str, FileSignature] = {}
        self._previous: dict[str, FileSignature] = {}
        self._refused: set[str] = set()
        """files that cannot be objects"""
        self._scans: Counter[str] = Counter()
        """looks with a change since last stored"""
        self._snapshots: list[dict[str, FileSignature]] = []
        """whole files before each signal"""
        self._uploads_paused = False
        """no uploads until the end"""
        self._sync_lock = threading.Lock()

    async def restore(self, allowance: Allowance) -> None:
        """Raises JobFailed (no bucket, or a bad key), JobLost or DiskFull."""
        objects = await self._transfers.run_with_retries(self._list_stored)
        allowance.check_inputs(sum(file.size for file in objects))
        await download(objects, self._folder, self._transfers, allowance)
        await self._transfers.run(partial(self._set_times, objects))
        files = await self._transfers.run(self._scan)
        self._stored = {path: file.signature for path, file in files.items()}

    async def keep(self) -> None:
        """Runs until cancelled; tolerates an unavailable store."""
        pause, failures = self._pause_seconds, 0
        while True:
            await self._clock.sleep(
                backoff_seconds(failures, pause, MAX_PAUSE_SECONDS) if failures else pause
            )
            began = self._clock.monotonic()
            try:
                await self._transfers.run(partial(self._sync, last=False))
            except Exception as error:
                failures += 1
                log.warning(
                    "Checkpoints could not be copied to %s and are retried: %s",
                    self._location.url,
                    error,
                )
            else:
                failures = 0
                took = self._clock.monotonic() - began
                pause = max(self._pause_seconds, PAUSE_PER_PASS * took)

    def note_writers(self) -> None:
        """Records complete files before a signal, which may leave open ones incomplete."""
        self._uploads_paused = True
        files = self._scan()
        complete = {
            path: file.signature
            for path, file in files.items()
            if not is_being_written(file.source) or is_only_appended_to(file.source)
        }
        self._snapshots.append(complete)

    async def finish(self, killed_by: int | None = None) -> None:
        """Makes the store equal to the folder once all writers have ended.

        Args:
            killed_by: the signal that ended a job to be resumed: incomplete files do not replace
                stored ones.

        Raises JobFailed (no bucket), JobLost or DiskFull.
        """
        complete = None
        if killed_by is not None and self._snapshots:
            # SIGKILL follows all notes; others may come before the last.
            complete = self._snapshots[-1 if killed_by == signal.SIGKILL else 0]
        await self._transfers.run_with_retries(partial(self._sync, last=True, complete=complete))

    def _list_stored(self) -> list[InputFile]:
        try:
            return list_below(self._transfers.objects, self._location, self._transfers.check)
        except NoSuchBucket as error:
            raise JobFailed(download_failed("NoSuchBucket", self._location.url)) from error

    def _set_times(self, objects: list[InputFile]) -> None:
        """Sets times in stored order: scripts take the newest file for the last."""
        for stored in objects:
            os.utime(self._folder / stored.path, (stored.modified_at, stored.modified_at))

    def _sync(self, last: bool, complete: dict[str, FileSignature] | None = None) -> None:
        """Makes one pass; failures are left for the next. `complete` limits the uploads."""
        with self._sync_lock:  # a cancelled pass may still run
            files = self._scan()
            changed = [file for file in files.values() if not _is_in(file, self._stored)]
            changed.sort(key=lambda file: file.signature)
            uploadable = (
                changed
                if complete is None
                else [file for file in changed if _is_in(file, complete)]
            )
            remaining = [file.path for file in uploadable if not self._store(file, last)]
            if remaining and last:
                raise Unavailable(f"Checkpoints are still being written: {remaining[0]}.")
            self._previous = {path: file.signature for path, file in files.items()}
            # A missing folder does not mean deleted files: keep them stored.
            folder_exists = self._folder.is_dir()
            deleted = [path for path in self._stored if path not in files] if folder_exists else []
            # A file open for this long does not replace deleted ones.
            all_uploadable = len(uploadable) == len(changed)
            if (
                deleted
                and all_uploadable
                and not any(self._scans[path] < MAX_SCANS for path in remaining)
            ):
                self._delete(deleted)

    def _scan(self) -> dict[str, _File]:
        files = _files(self._folder, self._base)
        return {file.path: file for file in files if file.path not in self._refused}

    def _store(self, checkpoint: _File, last: bool) -> bool:
        """Returns True if the file is stored, or never can be."""
        self._transfers.check()
        self._scans[checkpoint.path] += 1
        growing = not last and is_being_written(checkpoint.source)
        # After `growing`: a dead writer has nothing open.
        if not last and (self._uploads_paused or not self._is_settled(checkpoint, growing)):
            return False
        try:
            check_key(self._location.below(checkpoint.path))
            self._put(checkpoint, growing)
        except _Changed:
            return False
        except FileNotFoundError:
            return True
        except (JobFailed, PermissionError) as error:
            if isinstance(error.__cause__, NoSuchBucket):
                raise
            log.warning("A checkpoint is skipped: %s", error)
            self._refused.add(checkpoint.path)
            return True
        self._stored[checkpoint.path] = checkpoint.signature
        del self._scans[checkpoint.path]
        return True

    def _is_settled(self, checkpoint: _File, is_written: bool) -> bool:
        scans = self._scans[checkpoint.path]
        if is_written:
            # An append-only file is always whole; the check is slow.
            return scans % MAX_SCANS == 0 and is_only_appended_to(checkpoint.source)
        before = self._previous.get(checkpoint.path)
        if before is not None and before.inode != checkpoint.signature.inode:
            return True  # moved here when whole
        # A file written in steps may be unfinished, but some change forever.
        return before == checkpoint.signature or scans >= MAX_SCANS

    def _put(self, checkpoint: _File, growing: bool) -> None:
        """Raises _Changed, without an object, if the file changes meanwhile."""
        objects, location = self._transfers.objects, self._location.below(checkpoint.path)
        with (
            checkpoint.source.open("rb") as stream,
            put_stream(objects, location, self._transfers.check) as target,
        ):
            remaining = checkpoint.signature.size
            while remaining and (piece := stream.read(min(remaining, PIECE_BYTES))):
                target.write(piece)
                remaining -= len(piece)
            if remaining or (
                not growing and _signature_of(os.fstat(stream.fileno())) != checkpoint.signature
            ):
                raise _Changed

    def _delete(self, paths: list[str]) -> None:
        for start in range(0, len(paths), DELETE_BATCH_KEYS):
            batch = paths[start : start + DELETE_BATCH_KEYS]
            keys = [self._location.below(path).key for path in batch]
            self._transfers.objects.delete(self._location.bucket, keys)
            for path in batch:
                del self._stored[path]


def _is_in(file: _File, signatures: dict[str, FileSignature]) -> bool:
    return signatures.get(file.path) == file.signature


class _Changed(Exception): ...


def _files(folder: Path, base: Path) -> Iterator[_File]:
    """Yields regular files only, never outside the folder."""
    root = os.path.realpath(folder)
    pending = [""]
    while pending:
        parent = pending.pop()
        try:
            entries = list(os.scandir(folder / parent))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            continue  # longer than an object key may be
        for entry in entries:
            path = f"{parent}/{entry.name}" if parent else entry.name
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
            elif (file := _describe(path, Path(entry.path), root, base)) is not None:
                yield file


def _describe(path: str, source: Path, root: str, base: Path) -> _File | None:
    """Returns None if the file is gone or not a file."""
    try:
        if source.is_symlink():
            # A link inside the folder counts as its target.
            real = resolve(source, base)
            if real is None or not real.startswith(root + os.sep):
                return None
            source = Path(real)
        info = source.stat()
    except OSError:
        return None
    return _File(path, source, _signature_of(info)) if stat.S_ISREG(info.st_mode) else None


def _signature_of(info: os.stat_result) -> FileSignature:
    return FileSignature(info.st_mtime_ns, info.st_size, info.st_ino)
