"""Reads model data from the object store, which blocks, without blocking the agent."""

import asyncio
from collections.abc import AsyncIterator

from sagehen.agent.model_data import Location, StoredObject
from sagehen.domain.objects import ListingQuery, ObjectInfo
from sagehen.errors import Unavailable
from sagehen.objects import ObjectStore

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
        opened = await asyncio.to_thread(self._objects.open, location.bucket, location.key)
        try:
            if opened.info.etag != etag:
                raise Unavailable(f"{location.url} was overwritten while it was fetched.")
            chunks = opened.chunks()
            while chunk := await asyncio.to_thread(next, chunks, b""):
                yield chunk
        finally:
            await asyncio.to_thread(opened.close)

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
