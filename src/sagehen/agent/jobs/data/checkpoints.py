"""Keeps the checkpoints of one host in the object store: there before it starts, and while it runs.

What an attempt finds is always what one moment's files were, in the order they were written: a file
goes when it is whole, the older before the newer, and none is deleted there before all that is new
has arrived.
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
"""So many times as long as a pass took is waited for the next: looking is not to cost much."""
KEYS_TOGETHER = 1000
MOST_LOOKS = 5
"""What is changed all the time is stored as often as that allows."""


class FileSignature(msgspec.Struct, frozen=True, order=True):
    """Of a file's content: who writes it changes this. In the order of time."""

    mtime_ns: int
    size: int
    inode: int


class _File(msgspec.Struct, frozen=True):
    path: str
    """Below the folder."""
    source: Path
    """Where its bytes are."""
    signature: FileSignature


class Checkpoints:
    """
    Args:
        folder: of the host.
        base: what its container sees as /opt/ml.
        location: what is below it in the store is the same for all hosts.
        pause_seconds: from one look at the folder to the next.
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
        """What the store has, as far as this host has put it there, or got it."""
        self._seen: dict[str, FileSignature] = {}
        """By the last look."""
        self._refused: set[str] = set()
        """Files that cannot be objects."""
        self._looks: Counter[str] = Counter()
        """How often a file was found changed, since it was last stored."""
        self._notes: list[dict[str, FileSignature]] = []
        """What could be kept, before each signal that the container was sent."""
        self._held = False
        """Nothing more goes before the end."""
        self._pass = threading.Lock()

    async def restore(self, allowance: Allowance) -> None:
        """Bring what an earlier attempt has kept.

        Raises:
            JobFailed: there is no such bucket, or a key cannot be a file.
            JobLost: the store has been away for too long.
            DiskFull: there is no room for them.
        """
        found = await self._transfers.insist(self._find)
        allowance.check_inputs(sum(one.size for one in found))
        await download(found, self._folder, self._transfers, allowance)
        await self._transfers.run(partial(self._set_times, found))
        there = await self._transfers.run(self._look)
        self._stored = {path: one.signature for path, one in there.items()}

    async def keep(self) -> None:
        """Bring what is new to the store, until this is cancelled. The store may be away."""
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
        """To be called before a signal that may end whoever writes: what he has open stays half."""
        self._held = True
        now = self._look()
        whole = {
            path: one.signature
            for path, one in now.items()
            if not is_being_written(one.source) or is_only_appended_to(one.source)
        }
        self._notes.append(whole)

    async def finish(self, killed_by: int | None = None) -> None:
        """Have the store hold exactly what is there, once nobody writes any more.

        Args:
            killed_by: the signal that ended who wrote, of a job that is to go on: what may be only
                half written is not to take the place of what the store has.

        Raises:
            JobFailed: there is no such bucket.
            JobLost: the store has been away for too long.
            DiskFull: there is no room for them.
        """
        whole = None
        if killed_by is not None and self._notes:
            # SIGKILL comes after all notes. Any other may have ended him before the last was made.
            whole = self._notes[-1 if killed_by == signal.SIGKILL else 0]
        await self._transfers.insist(partial(self._sync, last=True, whole=whole))

    def _find(self) -> list[InputObject]:
        try:
            return list_below(self._transfers.objects, self._location, self._transfers.check)
        except NoSuchBucket as error:
            raise JobFailed(download_failed("NoSuchBucket", self._location.url)) from error

    def _set_times(self, found: list[InputObject]) -> None:
        """In the order in which they were kept: scripts take the newest file for the last."""
        for one in found:
            os.utime(self._folder / one.path, (one.modified_at, one.modified_at))

    def _sync(self, last: bool, whole: dict[str, FileSignature] | None = None) -> None:
        """One pass. What fails is left for the next.

        Args:
            whole: no other files are to go, where it is given.
        """
        with self._pass:  # One that was given up may still be at work.
            now = self._look()
            changed = [one for one in now.values() if not _is_in(one, self._stored)]
            changed.sort(key=lambda one: one.signature)
            may_go = changed if whole is None else [one for one in changed if _is_in(one, whole)]
            left = [one.path for one in may_go if not self._store(one, last)]
            if left and last:
                raise Unavailable(f"Checkpoints are still being written: {left[0]}.")
            self._seen = {path: one.signature for path, one in now.items()}
            # Files that are missing with their whole folder were not deleted one by one: who knows
            # what became of it. They stay in the store.
            is_there = self._folder.is_dir()
            gone = [path for path in self._stored if path not in now] if is_there else []
            # Who has had a file open for so long does not write what is to take the others' place.
            all_go = len(may_go) == len(changed)
            if gone and all_go and not any(self._looks[path] < MOST_LOOKS for path in left):
                self._delete(gone)

    def _look(self) -> dict[str, _File]:
        found = _files(self._folder, self._base)
        return {one.path: one for one in found if one.path not in self._refused}

    def _store(self, one: _File, last: bool) -> bool:
        """Whether it is in the store now, or never can be."""
        self._transfers.check()
        self._looks[one.path] += 1
        growing = not last and is_being_written(one.source)
        # After that was asked: of who has died meanwhile, nothing is open any more.
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
        """Whether it is whole, as far as anybody can tell."""
        looks = self._looks[one.path]
        if is_written:
            # What is only added to is whole at any time. Not at each look: it takes a while.
            return looks % MOST_LOOKS == 0 and is_only_appended_to(one.source)
        before = self._seen.get(one.path)
        if before is not None and before.inode != one.signature.inode:
            return True  # It was written elsewhere, and moved here when it was whole.
        # Who writes it in several goes may not be done with it; but some never are.
        return before == one.signature or looks >= MOST_LOOKS

    def _put(self, one: _File, growing: bool) -> None:
        """Make a file, as it was when it was looked at, an object.

        Raises:
            _Changed: it has become another meanwhile; there is no object then.
        """
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


class _Changed(Exception):
    """A file is not what it was when it was looked at."""


def _files(folder: Path, base: Path) -> Iterator[_File]:
    """All regular files below a folder; never outside of it."""
    root = os.path.realpath(folder)
    left = [""]
    while left:
        above = left.pop()
        try:
            entries = list(os.scandir(folder / above))
        except (FileNotFoundError, NotADirectoryError):
            continue  # It was removed meanwhile.
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            continue  # No key of an object is as long.
        for entry in entries:
            path = f"{above}/{entry.name}" if above else entry.name
            if entry.is_dir(follow_symlinks=False):
                left.append(path)
            elif (found := _describe(path, Path(entry.path), root, base)) is not None:
                yield found


def _describe(path: str, source: Path, root: str, base: Path) -> _File | None:
    """None where it is no file, or is not there any more."""
    try:
        if source.is_symlink():
            # To a file of the same folder, such as the last checkpoint, it is as good as that.
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
