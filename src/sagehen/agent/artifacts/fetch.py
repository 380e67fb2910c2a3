"""Fetches and unpacks model data from the object store."""

import asyncio
import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sagehen.agent.artifacts.unpack import MAX_ENTRIES, check_name, make_read_only, unpack
from sagehen.base.errors import ArtifactRejected
from sagehen.frame.s3_locations import Location

__all__ = ["CountingReader", "ModelData", "ModelDataReader", "StoredObject", "fetch"]


@dataclass(frozen=True)
class StoredObject:
    """One object of a listing or HEAD."""

    key: str
    size: int
    etag: str


@dataclass(frozen=True)
class ModelData:
    """The source of model data: an archive, or plain files (an object, or all below a prefix)."""

    location: Location
    compressed: bool = True
    etag: str | None = None
    """the requested version of one object"""
    prefix: Location | None = None
    """of the multi-model container that it is a model of"""


class ModelDataReader(Protocol):
    """The agent's view of an object store. Raises NotFound."""

    async def head(self, location: Location) -> StoredObject: ...

    def read(self, location: Location, etag: str) -> AsyncIterator[bytes]:
        """Raises Unavailable if the ETag has changed."""

    def list(self, location: Location) -> AsyncIterator[StoredObject]:
        """Lists objects ordered by key."""


class CountingReader:
    """Counts what is read of `objects`."""

    def __init__(self, reader: ModelDataReader, objects: list[StoredObject]) -> None:
        self._reader = reader
        self._size = sum(stored.size for stored in objects)
        self.bytes = 0

    @property
    def has_all(self) -> bool:
        return self.bytes >= self._size

    async def head(self, location: Location) -> StoredObject:
        return await self._reader.head(location)

    async def read(self, location: Location, etag: str) -> AsyncIterator[bytes]:
        async for part in self._reader.read(location, etag):
            self.bytes += len(part)
            yield part

    def list(self, location: Location) -> AsyncIterator[StoredObject]:
        return self._reader.list(location)


ARCHIVE = "archive.tar.gz"
WRITE_BYTES = 4 * 2**20
"""a smaller archive is unpacked from memory"""


async def fetch(
    reader: ModelDataReader,
    data: ModelData,
    objects: list[StoredObject],
    folder: Path,
    *,
    max_bytes: int,
) -> int:
    """Fills the empty `folder`, read-only; returns its bytes.

    Raises:
        ArtifactRejected: an archive or key is unsafe.
        NotFound, Unavailable: from the reader.
        OSError: writing failed.
    """
    if data.compressed:
        size = await _fetch_archive(reader, data.location, objects[0], folder, max_bytes)
    else:
        size = await _fetch_files(reader, data.location, objects, folder, max_bytes)
    await asyncio.to_thread(make_read_only, folder)
    return size


async def _fetch_archive(
    reader: ModelDataReader,
    location: Location,
    stored: StoredObject,
    folder: Path,
    max_bytes: int,
) -> int:
    if stored.size > max_bytes:
        raise ArtifactRejected(f"It has {stored.size} bytes; at most {max_bytes} are allowed.")
    if stored.size <= WRITE_BYTES:
        parts = [part async for part in reader.read(location, stored.etag)]
        content = io.BytesIO(b"".join(parts))
        unpacked = await asyncio.to_thread(unpack, content, folder, max_bytes=max_bytes)
        return unpacked.size_bytes
    archive = folder.parent / ARCHIVE
    try:
        await _download(reader, location, stored, archive)
        unpacked = await asyncio.to_thread(unpack, archive, folder, max_bytes=max_bytes)
    finally:
        archive.unlink(missing_ok=True)
    return unpacked.size_bytes


async def _fetch_files(
    reader: ModelDataReader,
    location: Location,
    objects: list[StoredObject],
    folder: Path,
    max_bytes: int,
) -> int:
    size = sum(stored.size for stored in objects)
    if size > max_bytes or len(objects) > MAX_ENTRIES:
        raise ArtifactRejected(
            f"It has {len(objects)} objects of {size} bytes; at most {MAX_ENTRIES} objects of "
            f"{max_bytes} bytes are allowed."
        )
    for stored in objects:
        relative = _relative_key(location, stored)
        if relative.endswith("/") and not stored.size:
            continue  # a console's folder marker
        parts = check_name(relative)
        if relative != "/".join(parts):
            raise ArtifactRejected(f"The key {stored.key!r} is not a valid file path.")
        path = folder.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            await _download(reader, Location(location.bucket, stored.key), stored, path)
        except (FileExistsError, NotADirectoryError):
            raise ArtifactRejected(
                f"The key {stored.key!r} is a file where another key needs a folder."
            ) from None
    return size


def _relative_key(location: Location, stored: StoredObject) -> str:
    if location.is_prefix:
        return stored.key[len(location.key) :] or "/"
    return stored.key.rpartition("/")[2]


async def _download(
    reader: ModelDataReader, location: Location, stored: StoredObject, path: Path
) -> None:
    with path.open("xb") as file:
        buffer = bytearray()
        async for part in reader.read(location, stored.etag):
            buffer += part
            if len(buffer) >= WRITE_BYTES:
                await asyncio.to_thread(file.write, bytes(buffer))
                buffer.clear()
        await asyncio.to_thread(file.write, buffer)
