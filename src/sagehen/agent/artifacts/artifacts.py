"""Model data: fetched and unpacked once, stored by content, shared by all instances."""

import asyncio
import hashlib
import itertools
import logging
import os
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sagehen.agent.artifacts.fetch import ModelData, ModelDataReader, StoredObject, fetch
from sagehen.agent.artifacts.folders import is_disk_full, reason_of, remove_tree
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

MOST_REMEMBERED_REJECTIONS = 256
LONGEST_FETCH_SECONDS = 3600.0
ATTEMPTS = 3
CONTENT = "model"
SIZE = "size"
PLACE_BYTES = 16 * 1024
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
        return self.size_bytes + PLACE_BYTES


class ArtifactCache:
    """The artifacts of one node, at `<folder>/<name>/model`.

    The name is a digest of address and ETag. The last used of the unused ones stay, up to
    `most_unused_bytes`.
    """

    def __init__(
        self,
        folder: Path,
        reader: ModelDataReader,
        *,
        most_artifact_bytes: int,
        most_unused_bytes: int,
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._reader = reader
        self._most_artifact_bytes = most_artifact_bytes
        self._most_unused_bytes = most_unused_bytes
        self._clock = clock
        self._places = itertools.count()
        self._used: dict[str, Artifact] = {}
        self._unused: OrderedDict[str, Artifact] = OrderedDict()
        self._unused_bytes = 0
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._rejected: OrderedDict[str, str] = OrderedDict()

    def open(self) -> None:
        """Loads complete artifacts and removes others. Blocks."""
        remove_tree(self._fresh)
        self._fresh.mkdir(mode=0o700, parents=True)
        kept = []
        for place in self._folder.iterdir():
            if not _NAME.fullmatch(place.name):
                continue  # not an artifact
            size = _size_of(place)
            if size is not None:
                used_at = (place / SIZE).stat().st_mtime
                kept.append((used_at, Artifact(place.name, place / CONTENT, size)))
            else:
                # After a power cut; it would block a whole one of that name.
                remove_tree(place)
        for _, artifact in sorted(kept, key=lambda each: each[0]):
            self._put_unused(artifact)
        for artifact in self._choose_victims(self._most_unused_bytes):
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
        kept = self._find_pinned(data)
        if kept is not None:
            self._use(kept)
            return kept
        objects = await self._look(data)
        name = _name_of(data, objects)
        if name in self._rejected:
            raise ArtifactRejected(self._rejected[name])
        for _ in range(ATTEMPTS):
            artifact = self._used.get(name) or self._unused.get(name)
            if artifact is not None:
                self._use(artifact)
                return artifact
            # Shielded: others wait too.
            await asyncio.shield(self._ensure_fetching(name, data, objects, on_fetched))
        raise Unavailable(f"{data.location.url} left the disk each time it was fetched.")

    async def release(self, artifact: Artifact, *, keep: bool = True) -> None:
        """Unless `keep`, the last release removes the artifact."""
        artifact.users -= 1
        if artifact.users:
            return
        del self._used[artifact.name]
        if keep:
            os.utime(artifact.folder.parent / SIZE)
            self._put_unused(artifact)
            await self._discard(self._choose_victims(self._most_unused_bytes))
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
        return self._used.get(name) or self._unused.get(name)

    async def _look(self, data: ModelData) -> list[StoredObject]:
        location = data.location
        try:
            if data.compressed or not location.is_prefix:
                stored = await self._reader.head(location)
                if data.etag not in (None, stored.etag):
                    log.warning(
                        "%s was overwritten since the endpoint was deployed, and what was deployed "
                        "is no longer kept: what lies there now is served.",
                        location.url,
                    )
                return [stored]
            objects = [found async for found in self._reader.list(location)]
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
            async with asyncio.timeout(LONGEST_FETCH_SECONDS):
                artifact = await self.with_room(lambda: self._make(name, data, objects))
        except ArtifactRejected as error:
            self._remember_rejection(name, str(error))
            raise
        except NotFound as error:
            raise ArtifactMissing(f"{data.location.url} is gone: {error}") from error
        except TimeoutError as error:
            raise Unavailable(f"{data.location.url} could not be fetched in time.") from error
        log.info("Artifact %s was made of %s.", name, data.location.url)
        if on_fetched is not None:
            on_fetched(self._clock.monotonic() - started)
        self._put_unused(artifact)

    async def with_room(self, write: Callable[[], Awaitable[_T]]) -> _T:
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
                log.warning("The disk is full: %d unused artifacts go.", len(self._unused))
                await self._discard(self._choose_victims(0))
                return await write()
        except OSError as error:
            raise ArtifactError(f"It cannot be stored: {reason_of(error)}.") from error

    async def _make(self, name: str, data: ModelData, objects: list[StoredObject]) -> Artifact:
        fresh = self._new_place()
        (fresh / CONTENT).mkdir(parents=True)
        try:
            size = await fetch(
                self._reader, data, objects, fresh / CONTENT, most_bytes=self._most_artifact_bytes
            )
            (fresh / SIZE).write_text(str(size))
            final = self._folder / name
            fresh.rename(final)
        except BaseException:
            await asyncio.to_thread(remove_tree, fresh)
            raise
        return Artifact(name, final / CONTENT, size)

    async def _discard(self, artifacts: list[Artifact]) -> None:
        # Moved away first: a new artifact may take the name.
        places = [self._new_place() for _ in artifacts]
        for artifact, place in zip(artifacts, places, strict=True):
            artifact.folder.parent.rename(place)
        for place in places:
            await asyncio.to_thread(remove_tree, place)

    def _new_place(self) -> Path:
        return self._fresh / str(next(self._places))

    def _use(self, artifact: Artifact) -> None:
        if self._unused.pop(artifact.name, None) is not None:
            self._unused_bytes -= artifact.disk_bytes
        artifact.users += 1
        self._used[artifact.name] = artifact

    def _put_unused(self, artifact: Artifact) -> None:
        self._unused[artifact.name] = artifact
        self._unused_bytes += artifact.disk_bytes

    def _choose_victims(self, most_bytes: int) -> list[Artifact]:
        victims = []
        while self._unused and self._unused_bytes > most_bytes:
            _, victim = self._unused.popitem(last=False)
            self._unused_bytes -= victim.disk_bytes
            victims.append(victim)
        return victims

    def _remember_rejection(self, name: str, reason: str) -> None:
        self._rejected[name] = reason
        if len(self._rejected) > MOST_REMEMBERED_REJECTIONS:
            self._rejected.popitem(last=False)


def _size_of(place: Path) -> int | None:
    """Returns None if the artifact is incomplete."""
    try:
        return int((place / SIZE).read_text())
    except (OSError, ValueError):
        return None


def _name_of(data: ModelData, objects: list[StoredObject]) -> str:
    digest = hashlib.sha256(f"{data.location.url}\0{data.compressed}".encode())
    for stored in objects:
        digest.update(f"\0{stored.key}\0{stored.etag}".encode())
    return digest.hexdigest()[:40]
