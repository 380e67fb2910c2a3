"""Reads objects in ranges, with the next one on its way."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

from sagehen.frame.s3_client import S3Error, S3Piece
from sagehen.services.sagemaker.transform.runner.errors import ObjectError
from sagehen.services.sagemaker.transform.runner.listing import InputObject
from sagehen.services.sagemaker.transform.runner.store import ObjectStore

__all__ = ["FIRST_BYTES", "ObjectReader"]

FIRST_BYTES = 256 * 1024
"""read at once; a larger object waits for its turn with the rest"""
RANGE_BYTES = 4 * 2**20


class ObjectReader:
    """Reads one object, all of it of one version."""

    def __init__(self, store: ObjectStore, item: InputObject) -> None:
        self._store = store
        self._item = item
        self._size = item.size
        self._etag = item.etag
        self._position = 0

    @property
    def size(self) -> int | None:
        """The object's size in the store; None until it is known."""
        return self._size

    async def first(self) -> bytes:
        """Returns the beginning, which is the whole of a small object."""
        if self._size == 0:
            return b""
        piece = await self.read(0, FIRST_BYTES)
        self._size, self._etag = piece.object_size, piece.etag
        self._position = len(piece.data)
        return piece.data

    @property
    def is_at_end(self) -> bool:
        return self._size is not None and self._position >= self._size

    async def rest(self) -> AsyncGenerator[bytes]:
        """Yields what follows the beginning."""
        ahead = self._start_next()
        try:
            while ahead is not None:
                data = await ahead
                ahead = self._start_next()
                yield data
        finally:
            if ahead is not None:
                ahead.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await ahead

    def _start_next(self) -> "asyncio.Task[bytes] | None":
        if self._size is None or self._position >= self._size:
            return None
        start = self._position
        length = min(RANGE_BYTES, self._size - start)
        self._position += length
        return asyncio.create_task(self._read_all(start, length))

    async def _read_all(self, start: int, length: int) -> bytes:
        data = (await self.read(start, length)).data
        if len(data) != length:
            raise ObjectError(
                "ClientError", f"{len(data)} bytes came instead of {length} from byte {start} on."
            )
        return data

    async def read(self, start: int, length: int) -> S3Piece:
        """Raises ObjectError or Unavailable."""
        source = self._item.source
        try:
            return await self._store.read(source.bucket, source.key, start, length, self._etag)
        except S3Error as error:
            if error.code == "PreconditionFailed":
                reason = "It was replaced while it was read."
            else:
                reason = f"{error.code}: {error}"
            raise ObjectError("ClientError", reason) from error
