"""Model data: fetched and unpacked once, stored by content, shared by all instances."""

import asyncio
import hashlib
import itertools
import logging
import os
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sagehen.agent.artifacts.fetch import ModelData, ModelDataReader, StoredObject, fetch
from sagehen.agent.artifacts.folders import error_text, is_disk_full, remove_tree
from sagehen.base.clock import Clock
from sagehen.base.errors import (
    ArtifactError,
    ArtifactMissing,
    ArtifactRejected,
    NotFound,
    Unavailable,
)
from sagehen.services.s3.storage.errors import NoSuchKey

__all__ = ["Artifact", "ArtifactCache"]

log = logging.getLogger(__name__)

MAX_REMEMBERED_REJECTIONS = 256
MAX_FETCH_SECONDS = 3600.0
ATTEMPTS = 3
CONTENT = "model"
SIZE = "size"
FOLDER_BYTES = 16 * 1024
"""disk use besides files: folders, partial blocks"""

_NAME = re.compile(r"[0-9a-f]{40}")
_T = TypeVar("_T")


@dataclass
class Artifact:
    """Unpacked model data; stays on disk while in use."""

    name: str
    folder: Path
    size_bytes: int
    users: int = 0

    @property
    def disk_bytes(self) -> int:
        return self.size_bytes + FOLDER_BYTES


class ArtifactCache:
    """The artifacts of one node, at `<folder>/<name>/model`.

    The name is a digest of address and ETag. The last used of the unused ones stay, up to
    `max_unused_bytes`.
    """

    def __init__(
        self,
        folder: Path,
        reader: ModelDataReader,
        *,
        max_artifact_bytes: int,
        max_unused_bytes: int,
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._reader = reader
        self._max_artifact_bytes = max_artifact_bytes
        self._max_unused_bytes = max_unused_bytes
        self._clock = clock
        self._names = itertools.count()
        self._in_use: dict[str, Artifact] = {}
        self._unused: OrderedDict[str, Artifact] = OrderedDict()
        self._unused_bytes = 0
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._rejected: OrderedDict[str, str] = OrderedDict()

    def open(self) -> None:
        """Loads complete artifacts and removes others. Blocks."""
        remove_tree(self._fresh)
        self._fresh.mkdir(mode=0o700, parents=True)
        complete = []
        for folder in self._folder.iterdir():
            if not _NAME.fullmatch(folder.name):
                continue  # not an artifact
            size = _size_of(folder)
            if size is not None:
                used_at = (folder / SIZE).stat().st_mtime
                complete.append((used_at, Artifact(folder.name, folder / CONTENT, size)))
            else:
                # After a power cut; it would block a whole one of that name.
                remove_tree(folder)
        for _, artifact in sorted(complete, key=lambda entry: entry[0]):
            self._put_unused(artifact)
        for artifact in self._evict(self._max_unused_bytes):
            remove_tree(artifact.folder.parent)

    async def acquire(
        self, data: ModelData, on_fetched: Callable[[float], None] | None = None
    ) -> Artifact:
        """Fetches `data` if needed, once for all callers, who owe a `release`.

        `on_fetched` gets the seconds if this call started the fetch.

        Raises:
            ArtifactMissing: there is no such object.
            ArtifactRejected: it cannot be unpacked safely.
            ArtifactError: the disk is full.
            Unavailable: the object store cannot be reached.
        """
        pinned = self._find_pinned(data)
        if pinned is not None:
            self._use(pinned)
            return pinned
        objects = await self._list_objects(data)
        name = _name_of(data, objects)
        if name in self._rejected:
            raise ArtifactRejected(self._rejected[name])
        for _ in range(ATTEMPTS):
            artifact = self._in_use.get(name) or self._unused.get(name)
            if artifact is not None:
                self._use(artifact)
                return artifact
            # Shielded: others wait too.
            await asyncio.shield(self._ensure_fetching(name, data, objects, on_fetched))
        raise Unavailable(
            f"{data.location.url} was evicted from the artifact cache each time it was fetched."
        )

    async def release(self, artifact: Artifact, *, keep: bool = True) -> None:
        """Ends one use. The last one removes the artifact unless `keep` is true."""
        artifact.users -= 1
        if artifact.users:
            return
        del self._in_use[artifact.name]
        if keep:
            os.utime(artifact.folder.parent / SIZE)
            self._put_unused(artifact)
            await self._discard(self._evict(self._max_unused_bytes))
        else:
            await self._discard([artifact])

    @property
    def _fresh(self) -> Path:
        return self._folder / ".fresh"

    def _find_pinned(self, data: ModelData) -> Artifact | None:
        """The object itself may be gone or replaced."""
        if data.etag is None:
            return None
        name = _name_of(data, [StoredObject(data.location.key, 0, data.etag)])
        return self._in_use.get(name) or self._unused.get(name)

    async def _list_objects(self, data: ModelData) -> list[StoredObject]:
        location = data.location
        try:
            if data.compressed or not location.is_prefix:
                stored = await self._reader.head(location)
                if data.etag not in (None, stored.etag):
                    log.warning(
                        "%s was overwritten after the endpoint was deployed, and the deployed "
                        "version is no longer cached: the new version is served.",
                        location.url,
                    )
                return [stored]
            objects = [item async for item in self._reader.list(location)]
        except NoSuchKey as error:
            raise ArtifactMissing(f"There is no object at {location.url}.") from error
        except NotFound as error:
            raise ArtifactMissing(f"There is no object at {location.url}: {error}") from error
        if not objects:
            raise ArtifactMissing(f"There are no objects below {location.url}.")
        return objects

    def _ensure_fetching(
        self,
        name: str,
        data: ModelData,
        objects: list[StoredObject],
        on_fetched: Callable[[float], None] | None,
    ) -> asyncio.Task[None]:
        task = self._fetching.get(name)
        if task is None:
            task = asyncio.create_task(self._fetch(name, data, objects, on_fetched))
            task.add_done_callback(lambda done: self._end_fetching(name, done))
            self._fetching[name] = task
        return task

    def _end_fetching(self, name: str, task: asyncio.Task[None]) -> None:
        del self._fetching[name]
        if not task.cancelled():
            task.exception()  # retrieved: all waiters may have given up

    async def _fetch(
        self,
        name: str,
        data: ModelData,
        objects: list[StoredObject],
        on_fetched: Callable[[float], None] | None,
    ) -> None:
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(MAX_FETCH_SECONDS):
                artifact = await self.retry_on_full_disk(
                    lambda: self._fetch_and_unpack(name, data, objects)
                )
        except ArtifactRejected as error:
            self._remember_rejection(name, str(error))
            raise
        except NotFound as error:
            raise ArtifactMissing(f"{data.location.url} is gone: {error}") from error
        except TimeoutError as error:
            raise Unavailable(f"{data.location.url} could not be fetched in time.") from error
        log.info("Made artifact %s from %s.", name, data.location.url)
        if on_fetched is not None:
            on_fetched(self._clock.monotonic() - started)
        self._put_unused(artifact)

    async def retry_on_full_disk(self, write: Callable[[], Awaitable[_T]]) -> _T:
        """Writes; on a full disk removes unused artifacts and tries again.

        Raises:
            ArtifactError: writing failed all the same.
        """
        try:
            try:
                return await write()
            except OSError as error:
                if not is_disk_full(error) or not self._unused:
                    raise
                log.warning("The disk is full: removing %d unused artifacts.", len(self._unused))
                await self._discard(self._evict(0))
                return await write()
        except OSError as error:
            raise ArtifactError(f"It cannot be stored: {error_text(error)}.") from error

    async def _fetch_and_unpack(
        self, name: str, data: ModelData, objects: list[StoredObject]
    ) -> Artifact:
        fresh = self._new_folder()
        (fresh / CONTENT).mkdir(parents=True)
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(asyncio.to_thread, remove_tree, fresh)
            size = await fetch(
                self._reader, data, objects, fresh / CONTENT, max_bytes=self._max_artifact_bytes
            )
            (fresh / SIZE).write_text(str(size))
            final = self._folder / name
            fresh.rename(final)
            on_failure.pop_all()
        return Artifact(name, final / CONTENT, size)

    async def _discard(self, artifacts: list[Artifact]) -> None:
        # Moved away first: a new artifact may take the name.
        graves = [self._new_folder() for _ in artifacts]
        for artifact, grave in zip(artifacts, graves, strict=True):
            artifact.folder.parent.rename(grave)
        for grave in graves:
            await asyncio.to_thread(remove_tree, grave)

    def _new_folder(self) -> Path:
        return self._fresh / str(next(self._names))

    def _use(self, artifact: Artifact) -> None:
        if self._unused.pop(artifact.name, None) is not None:
            self._unused_bytes -= artifact.disk_bytes
        artifact.users += 1
        self._in_use[artifact.name] = artifact

    def _put_unused(self, artifact: Artifact) -> None:
        self._unused[artifact.name] = artifact
        self._unused_bytes += artifact.disk_bytes

    def _evict(self, max_bytes: int) -> list[Artifact]:
        victims = []
        while self._unused and self._unused_bytes > max_bytes:
            _, victim = self._unused.popitem(last=False)
            self._unused_bytes -= victim.disk_bytes
            victims.append(victim)
        return victims

    def _remember_rejection(self, name: str, reason: str) -> None:
        self._rejected[name] = reason
        if len(self._rejected) > MAX_REMEMBERED_REJECTIONS:
            self._rejected.popitem(last=False)


def _size_of(folder: Path) -> int | None:
    """Returns None if the artifact is incomplete."""
    try:
        return int((folder / SIZE).read_text())
    except (OSError, ValueError):
        return None


def _name_of(data: ModelData, objects: list[StoredObject]) -> str:
    digest = hashlib.sha256(f"{data.location.url}\0{data.compressed}".encode())
    for stored in objects:
        digest.update(f"\0{stored.key}\0{stored.etag}".encode())
    return digest.hexdigest()[:40]
