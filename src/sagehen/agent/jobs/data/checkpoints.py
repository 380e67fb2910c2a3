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
from sagehen.agent.jobs.data.inputs import InputObject, list_below
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
from sagehen.frame.s3_locations import Location
from sagehen.services.s3.storage.errors import NoSuchBucket

__all__ = ["Checkpoints", "FileSignature"]

log = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 60.0
PAUSE_PER_PASS = 5
"""times as long as a pass took"""
KEYS_TOGETHER = 1000
MOST_LOOKS = 5
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
        self._seen: dict[str, FileSignature] = {}
        self._refused: set[str] = set()
        """files that cannot be objects"""
        self._looks: Counter[str] = Counter()
        """looks with a change since last stored"""
        self._notes: list[dict[str, FileSignature]] = []
        """whole files before each signal"""
        self._held = False
        """no uploads until the end"""
        self._pass = threading.Lock()

    async def restore(self, allowance: Allowance) -> None:
        """Raises JobFailed (no bucket, or a bad key), JobLost or DiskFull."""
        found = await self._transfers.insist(self._find)
        allowance.check_inputs(sum(one.size for one in found))
        await download(found, self._folder, self._transfers, allowance)
        await self._transfers.run(partial(self._set_times, found))
        there = await self._transfers.run(self._look)
        self._stored = {path: one.signature for path, one in there.items()}

    async def keep(self) -> None:
        """Runs until cancelled; tolerates an unavailable store."""
        pause = self._pause_seconds
        while True:
            await self._clock.sleep(pause)
            began = self._clock.monotonic()
            try:
                await self._transfers.run(partial(self._sync, last=False))
            except Exception as error:
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                log.warning("Checkpoints in %s are not synced now: %s", self._location.url, error)
            else:
                took = self._clock.monotonic() - began
                pause = max(self._pause_seconds, PAUSE_PER_PASS * took)

    def note_writers(self) -> None:
        """Must be called before a signal: the writer's open files stay incomplete."""
        self._held = True
        now = self._look()
        whole = {
            path: one.signature
            for path, one in now.items()
            if not is_being_written(one.source) or is_only_appended_to(one.source)
        }
        self._notes.append(whole)

    async def finish(self, killed_by: int | None = None) -> None:
        """Makes the store equal to the folder once all writers have ended.

        Args:
            killed_by: the signal that ended a job to be resumed: incomplete files do not replace
                stored ones.

        Raises JobFailed (no bucket), JobLost or DiskFull.
        """
        whole = None
        if killed_by is not None and self._notes:
            # SIGKILL follows all notes; others may come before the last.
            whole = self._notes[-1 if killed_by == signal.SIGKILL else 0]
        await self._transfers.insist(partial(self._sync, last=True, whole=whole))

    def _find(self) -> list[InputObject]:
        try:
            return list_below(self._transfers.objects, self._location, self._transfers.check)
        except NoSuchBucket as error:
            raise JobFailed(download_failed("NoSuchBucket", self._location.url)) from error

    def _set_times(self, found: list[InputObject]) -> None:
        """Sets times in stored order: scripts take the newest file for the last."""
        for one in found:
            os.utime(self._folder / one.path, (one.modified_at, one.modified_at))

    def _sync(self, last: bool, whole: dict[str, FileSignature] | None = None) -> None:
        """Makes one pass; failures are left for the next. `whole` limits the uploads."""
        with self._pass:  # a cancelled pass may still run
            now = self._look()
            changed = [one for one in now.values() if not _is_in(one, self._stored)]
            changed.sort(key=lambda one: one.signature)
            may_go = changed if whole is None else [one for one in changed if _is_in(one, whole)]
            left = [one.path for one in may_go if not self._store(one, last)]
            if left and last:
                raise Unavailable(f"Checkpoints are still being written: {left[0]}.")
            self._seen = {path: one.signature for path, one in now.items()}
            # A missing folder does not mean deleted files: keep them stored.
            is_there = self._folder.is_dir()
            gone = [path for path in self._stored if path not in now] if is_there else []
            # A file open for this long does not replace deleted ones.
            all_go = len(may_go) == len(changed)
            if gone and all_go and not any(self._looks[path] < MOST_LOOKS for path in left):
                self._delete(gone)

    def _look(self) -> dict[str, _File]:
        found = _files(self._folder, self._base)
        return {one.path: one for one in found if one.path not in self._refused}

    def _store(self, one: _File, last: bool) -> bool:
        """Returns True if the file is stored, or never can be."""
        self._transfers.check()
        self._looks[one.path] += 1
        growing = not last and is_being_written(one.source)
        # After `growing`: a dead writer has nothing open.
        if not last and (self._held or not self._may_go(one, growing)):
            return False
        try:
            check_key(self._location.below(one.path))
            self._put(one, growing)
        except _Changed:
            return False
        except FileNotFoundError:
            return True
        except (JobFailed, PermissionError) as error:
            if isinstance(error.__cause__, NoSuchBucket):
                raise
            log.warning("A checkpoint is not kept: %s", error)
            self._refused.add(one.path)
            return True
        self._stored[one.path] = one.signature
        del self._looks[one.path]
        return True

    def _may_go(self, one: _File, is_written: bool) -> bool:
        looks = self._looks[one.path]
        if is_written:
            # An append-only file is always whole; the check is slow.
            return looks % MOST_LOOKS == 0 and is_only_appended_to(one.source)
        before = self._seen.get(one.path)
        if before is not None and before.inode != one.signature.inode:
            return True  # moved here when whole
        # A file written in steps may be unfinished, but some change forever.
        return before == one.signature or looks >= MOST_LOOKS

    def _put(self, one: _File, growing: bool) -> None:
        """Raises _Changed, without an object, if the file changes meanwhile."""
        objects, location = self._transfers.objects, self._location.below(one.path)
        with (
            one.source.open("rb") as file,
            put_stream(objects, location, self._transfers.check) as target,
        ):
            left = one.signature.size
            while left and (piece := file.read(min(left, PIECE_BYTES))):
                target.write(piece)
                left -= len(piece)
            if left or (not growing and _sign(os.fstat(file.fileno())) != one.signature):
                raise _Changed

    def _delete(self, paths: list[str]) -> None:
        for start in range(0, len(paths), KEYS_TOGETHER):
            some = paths[start : start + KEYS_TOGETHER]
            keys = [self._location.below(path).key for path in some]
            self._transfers.objects.delete(self._location.bucket, keys)
            for path in some:
                del self._stored[path]


def _is_in(one: _File, known: dict[str, FileSignature]) -> bool:
    return known.get(one.path) == one.signature


class _Changed(Exception): ...


def _files(folder: Path, base: Path) -> Iterator[_File]:
    """Yields regular files only, never outside the folder."""
    root = os.path.realpath(folder)
    left = [""]
    while left:
        above = left.pop()
        try:
            entries = list(os.scandir(folder / above))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            continue  # longer than an object key may be
        for entry in entries:
            path = f"{above}/{entry.name}" if above else entry.name
            if entry.is_dir(follow_symlinks=False):
                left.append(path)
            elif (found := _describe(path, Path(entry.path), root, base)) is not None:
                yield found


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
    return _File(path, source, _sign(info)) if stat.S_ISREG(info.st_mode) else None


def _sign(info: os.stat_result) -> FileSignature:
    return FileSignature(info.st_mtime_ns, info.st_size, info.st_ino)
