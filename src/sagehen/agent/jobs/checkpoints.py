"""Keeps the checkpoints of one host in the object store: there before it starts, and while it runs.

What an attempt finds is always what one moment's files were, in the order they were written: a file
goes when it is whole, the older before the newer, and none is deleted there before all that is new
has arrived.
"""

import logging
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from sagehen.agent.jobs.allowance import Allowance
from sagehen.agent.jobs.downloads import download
from sagehen.agent.jobs.failures import JobFailed, download_failed
from sagehen.agent.jobs.inputs import InputObject, list_below
from sagehen.agent.jobs.open_files import is_being_written
from sagehen.agent.jobs.store_writes import PIECE_BYTES, check_key, put_stream
from sagehen.agent.jobs.transfers import Transfers
from sagehen.clock import Clock
from sagehen.domain.locations import Location
from sagehen.objects.faults import NoSuchBucket

__all__ = ["Checkpoints", "Signature"]

log = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 60.0
PAUSE_PER_PASS = 5
"""So many times as long as a pass took is waited for the next: looking is not to cost much."""
KEYS_TOGETHER = 1000
MOST_LOOKS = 5
"""What is changed all the time is stored as often as that allows."""


class Signature(msgspec.Struct, frozen=True, order=True):
    """Of a file's content: who writes it changes this. In the order of time."""

    mtime_ns: int
    size: int
    inode: int


class Checkpoints:
    """
    Args:
        folder: of the host.
        location: what is below it in the store is the same for all hosts.
        pause_seconds: from one look at the folder to the next.
    """

    def __init__(
        self,
        folder: Path,
        location: Location,
        transfers: Transfers,
        clock: Clock,
        pause_seconds: float,
    ) -> None:
        self._folder = folder
        self._location = location
        self._transfers = transfers
        self._clock = clock
        self._pause_seconds = pause_seconds
        self._stored: dict[str, Signature] = {}
        """What the store has, as far as this host has put it there, or got it."""
        self._seen: dict[str, Signature] = {}
        """By the last look."""
        self._refused: set[str] = set()
        """Files that cannot be objects."""
        self._looks: Counter[str] = Counter()
        """How often a file was found changed, since it was last stored."""
        self._pass = threading.Lock()

    async def restore(self, allowance: Allowance) -> None:
        """Bring what an earlier attempt has kept.

        Raises:
            JobFailed: there is no such bucket, or a key cannot be a file.
            JobLost: the store has been away for too long, or the disk is full.
        """
        found = await self._transfers.insist(self._find)
        allowance.check_inputs(sum(one.size for one in found))
        await download(found, self._folder, self._transfers, allowance)
        self._stored = await self._transfers.run(self._look)

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

    async def finish(self) -> None:
        """Have the store hold exactly what is there, once nobody writes any more.

        Raises:
            JobFailed: there is no such bucket.
            JobLost: the store has been away for too long.
        """
        await self._transfers.insist(partial(self._sync, last=True))

    def _find(self) -> list[InputObject]:
        try:
            return list_below(self._transfers.objects, self._location, self._transfers.check)
        except NoSuchBucket as error:
            raise JobFailed(download_failed("NoSuchBucket", self._location.url)) from error

    def _sync(self, last: bool) -> None:
        """One pass. What fails is left for the next."""
        with self._pass:  # One that was given up may still be at work.
            now = self._look()
            changed = sorted(
                (signature, path)
                for path, signature in now.items()
                if self._stored.get(path) != signature
            )
            left = [path for _, path in changed if not self._store(path, now[path], last)]
            self._seen = now
            gone = [path for path in self._stored if path not in now]
            if gone and not left:
                self._delete(gone)

    def _look(self) -> dict[str, Signature]:
        found = {path: _sign(info) for path, info in _files(self._folder)}
        for path in found.keys() & self._refused:
            del found[path]
        return found

    def _store(self, path: str, signature: Signature, last: bool) -> bool:
        """Whether it is in the store now, or never can be."""
        self._transfers.check()
        file = self._folder / path
        location = self._location.below(path)
        self._looks[path] += 1
        if not last and (self._is_young(path, signature) or is_being_written(file)):
            return False
        try:
            check_key(location)
        except JobFailed as error:
            log.warning("A checkpoint is not kept: %s", error)
            self._refused.add(path)
            return True
        try:
            unchanged = self._put(file, location, signature)
        except FileNotFoundError:
            return True
        if unchanged:
            self._stored[path] = signature
            del self._looks[path]
        return unchanged

    def _is_young(self, path: str, signature: Signature) -> bool:
        """Who writes a file in several goes may not be done with it; but some never are."""
        return self._seen.get(path) != signature and self._looks[path] < MOST_LOOKS

    def _put(self, path: Path, location: Location, signature: Signature) -> bool:
        """Make a file an object, unless it is changed meanwhile; whether it was not."""
        try:
            with (
                path.open("rb") as file,
                put_stream(self._transfers.objects, location, self._transfers.check) as target,
            ):
                while piece := file.read(PIECE_BYTES):
                    target.write(piece)
                if _sign(os.fstat(file.fileno())) != signature:
                    raise _Changed
        except _Changed:
            return False
        return True

    def _delete(self, paths: list[str]) -> None:
        for start in range(0, len(paths), KEYS_TOGETHER):
            some = paths[start : start + KEYS_TOGETHER]
            keys = [self._location.below(path).key for path in some]
            self._transfers.objects.delete(self._location.bucket, keys)
            for path in some:
                del self._stored[path]


class _Changed(Exception):
    """A file is not what it was when it was looked at."""


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """All regular files below a folder, by their relative paths; never outside of it."""
    root = os.path.realpath(folder)
    left = [""]
    while left:
        above = left.pop()
        try:
            entries = list(os.scandir(folder / above))
        except FileNotFoundError:
            continue  # It was removed meanwhile.
        for entry in entries:
            path = f"{above}/{entry.name}" if above else entry.name
            if entry.is_dir(follow_symlinks=False):
                left.append(path)
            elif entry.is_file() and _is_inside(entry, root):
                with suppress(FileNotFoundError):
                    yield path, entry.stat()


def _is_inside(entry: os.DirEntry[str], root: str) -> bool:
    """A link to a file of the same folder, such as the last checkpoint, is as good as that."""
    return not entry.is_symlink() or os.path.realpath(entry.path).startswith(root + os.sep)


def _sign(info: os.stat_result) -> Signature:
    return Signature(info.st_mtime_ns, info.st_size, info.st_ino)
