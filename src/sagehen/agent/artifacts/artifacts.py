"""Model data: fetched and unpacked once, stored by content, shared by all instances."""

import asyncio
import itertools
import logging
import os
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from sagehen.agent.artifacts.fetch import (
    CountingReader,
    ModelData,
    ModelDataReader,
    StoredObject,
    fetch,
)
from sagehen.agent.artifacts.folders import error_text, is_disk_full, remove_tree
from sagehen.agent.artifacts.tree_stream import tree_digest
from sagehen.agent.artifacts.versions import artifact_name, find_objects, model_versions
from sagehen.base.clock import Clock
from sagehen.base.errors import (
    ArtifactError,
    ArtifactMissing,
    ArtifactRejected,
    NotFound,
    Unavailable,
)

__all__ = ["Artifact", "ArtifactCache", "ArtifactOrigin", "Fetched", "Neighbours"]

log = logging.getLogger(__name__)

MAX_REMEMBERED_REJECTIONS = 256
MAX_FETCH_SECONDS = 3600.0
ATTEMPTS = 3
CONTENT = "model"
SIZE = "size"
ORIGIN = "origin"
FOLDER_BYTES = 16 * 1024
"""disk use besides files: folders, partial blocks"""

_NAME = re.compile(r"[0-9a-f]{40}")
_T = TypeVar("_T")


class ArtifactOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The version and digest by which other nodes and control know an artifact, in a cluster."""

    url: str
    digest: str
    """of `tree_stream`, as it was when the artifact was fetched"""
    versions: tuple[str, ...]
    """the names by which control asks for it"""


class Fetched(NamedTuple):
    size_bytes: int
    digest: str


class Neighbours(Protocol):
    """The other nodes of a cluster."""

    async def fetch(self, name: str, url: str, folder: Path, max_bytes: int) -> Fetched | None:
        """Fills the empty `folder`, read-only; None if the object store is to be asked. Raises
        OSError: writing failed."""


@dataclass
class Artifact:
    """Unpacked model data; stays on disk while in use."""

    name: str
    folder: Path
    size_bytes: int
    origin: ArtifactOrigin | None = None
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
        neighbours: Neighbours | None = None,
    ) -> None:
        self._folder = folder
        self._reader = reader
        self._max_artifact_bytes = max_artifact_bytes
        self._max_unused_bytes = max_unused_bytes
        self._clock = clock
        self._neighbours = neighbours
        self.on_change: Callable[[Artifact, bool], None] = lambda artifact, is_here: None
        """called when an artifact has come, or is to leave"""
        self._names = itertools.count()
        self._in_use: dict[str, Artifact] = {}
        self._unused: OrderedDict[str, Artifact] = OrderedDict()
        self._unused_bytes = 0
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._from_store: dict[str, CountingReader] = {}
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
                origin = _origin_of(folder)
                complete.append((used_at, Artifact(folder.name, folder / CONTENT, size, origin)))
            else:
                # After a power cut; it would block a whole one of that name.
                remove_tree(folder)
        for _, artifact in sorted(complete, key=lambda entry: entry[0]):
            self._put_unused(artifact)
            self.on_change(artifact, True)
        for artifact in self._evict(self._max_unused_bytes):
            self.on_change(artifact, False)
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
        objects = await find_objects(self._reader, data)
        name = artifact_name(data, objects)
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

    # For other nodes

    def pin(self, name: str) -> Artifact | None:
        """Returns an artifact that others may have, if it is here; the caller owes a `release`."""
        artifact = self._in_use.get(name) or self._unused.get(name)
        if artifact is None or artifact.origin is None:
            return None
        self._use(artifact)
        return artifact

    def find_origin(self, name: str) -> ArtifactOrigin | None:
        artifact = self._in_use.get(name) or self._unused.get(name)
        return None if artifact is None else artifact.origin

    def is_fetching(self, name: str) -> bool:
        return name in self._fetching

    def received_bytes(self, name: str) -> int | None:
        """Returns what has come of an artifact that is being read from the store; None if it is
        not, or has been read."""
        reading = self._from_store.get(name)
        return None if reading is None or reading.has_all else reading.bytes

    async def wait_for_fetch(self, name: str, seconds: float) -> None:
        """Waits while the artifact is being fetched, but not for longer than `seconds`."""
        if name in self._fetching:
            await asyncio.wait([self._fetching[name]], timeout=seconds)

    def origins(self) -> list[tuple[str, ArtifactOrigin]]:
        """Returns the artifacts that others may have, by name."""
        here = [*self._in_use.values(), *self._unused.values()]
        return [(each.name, each.origin) for each in here if each.origin is not None]

    @property
    def _fresh(self) -> Path:
        return self._folder / ".fresh"

    def _find_pinned(self, data: ModelData) -> Artifact | None:
        """The object itself may be gone or replaced."""
        if data.etag is None:
            return None
        name = artifact_name(data, [StoredObject(data.location.key, 0, data.etag)])
        return self._in_use.get(name) or self._unused.get(name)

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
        self.on_change(artifact, True)

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
            size, origin = await self._fill(fresh, name, data, objects)
            (fresh / SIZE).write_text(str(size))
            final = self._folder / name
            fresh.rename(final)
            on_failure.pop_all()
        return Artifact(name, final / CONTENT, size, origin)

    async def _fill(
        self, fresh: Path, name: str, data: ModelData, objects: list[StoredObject]
    ) -> tuple[int, ArtifactOrigin | None]:
        """Fetches from another node of the cluster, if one has it, or else from the store."""
        folder, most = fresh / CONTENT, self._max_artifact_bytes
        fetched: Fetched | None = None
        if self._neighbours is not None:
            fetched = await self._neighbours.fetch(name, data.location.url, folder, most)
        if fetched is None:
            self._from_store[name] = reader = CountingReader(self._reader, objects)
            try:
                size = await fetch(reader, data, objects, folder, max_bytes=most)
            finally:
                del self._from_store[name]
            if self._neighbours is None:
                return size, None
            # Before a container can change it.
            fetched = Fetched(size, await asyncio.to_thread(tree_digest, folder))
        origin = ArtifactOrigin(
            url=data.location.url, digest=fetched.digest, versions=model_versions(data, objects)
        )
        (fresh / ORIGIN).write_bytes(msgspec.json.encode(origin))
        return fetched.size_bytes, origin

    async def _discard(self, artifacts: list[Artifact]) -> None:
        for artifact in artifacts:
            self.on_change(artifact, False)
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


def _origin_of(folder: Path) -> ArtifactOrigin | None:
    """Returns None for what was fetched outside of a cluster."""
    try:
        return msgspec.json.decode((folder / ORIGIN).read_bytes(), type=ArtifactOrigin)
    except (OSError, msgspec.MsgspecError):
        return None
