"""Reads model data from the object store, which blocks, without blocking the agent."""

import asyncio
from collections.abc import AsyncIterator, Iterator

from sagehen.agent.model_data import StoredObject
from sagehen.domain.locations import Location
from sagehen.domain.objects import ListingQuery, ObjectInfo
from sagehen.errors import Unavailable
from sagehen.objects import ObjectStore
from sagehen.objects.store import OpenObject

__all__ = ["StoredModelData"]

OBJECTS_PER_PAGE = 1000


class StoredModelData:
    """`ModelDataReader` over an object store."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def head(self, location: Location) -> StoredObject:
        info = await asyncio.to_thread(self._objects.head, location.bucket, location.key)
        return _describe(info)

    async def read(self, location: Location, etag: str) -> AsyncIterator[bytes]:
        # Each turn in a thread costs more than reading a small object: those take one.
        opened, chunks, chunk = await asyncio.to_thread(self._begin, location, etag)
        try:
            left = opened.info.size
            while chunk:
                left -= len(chunk)
                yield chunk
                chunk = await asyncio.to_thread(next, chunks, b"") if left > 0 else b""
        finally:
            opened.close()

    def _begin(self, location: Location, etag: str) -> tuple[OpenObject, Iterator[bytes], bytes]:
        opened = self._objects.open(location.bucket, location.key)
        try:
            if opened.info.etag != etag:
                raise Unavailable(f"{location.url} was overwritten while it was fetched.")
            chunks = iter(opened.chunks())
            return opened, chunks, next(chunks, b"")
        except BaseException:
            opened.close()
            raise

    async def list(self, location: Location) -> AsyncIterator[StoredObject]:
        after, more = "", True
        while more:
            query = ListingQuery(prefix=location.key, after=after, limit=OBJECTS_PER_PAGE)
            page = await asyncio.to_thread(self._objects.list_page, location.bucket, query)
            for info in page.objects:
                yield _describe(info)
            after, more = page.last, page.truncated


def _describe(info: ObjectInfo) -> StoredObject:
    return StoredObject(info.key, info.size, info.etag)
