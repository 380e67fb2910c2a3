"""Reads Parquet objects as text: their parts in ranges, and each conversion in a thread."""

import asyncio
from collections.abc import AsyncGenerator

from sagehen.base.errors import Unavailable
from sagehen.services.sagemaker.transform.records.parquet import ParquetError, read_parquet
from sagehen.services.sagemaker.transform.runner.errors import ObjectError
from sagehen.services.sagemaker.transform.runner.reading import ObjectReader

__all__ = ["parquet_pieces"]


class _Source:
    """Reads for a thread, by the event loop."""

    def __init__(self, reader: ObjectReader, size: int) -> None:
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self.size = size
        self.is_away = False

    def read_range(self, offset: int, length: int) -> bytes:
        reading = asyncio.run_coroutine_threadsafe(self._reader.read(offset, length), self._loop)
        try:
            return reading.result().data
        except Unavailable:
            self.is_away = True
            raise


async def parquet_pieces(
    reader: ObjectReader, content_type: str, reads: asyncio.Semaphore
) -> AsyncGenerator[bytes]:
    """Yields lines of `content_type`. Raises ObjectError or Unavailable."""
    await reader.first()
    source = _Source(reader, reader.size or 0)
    pieces = read_parquet(source, content_type)
    async with reads:
        while True:
            try:
                piece = await asyncio.to_thread(next, pieces, None)
            except (ParquetError, Unavailable) as error:
                if source.is_away:
                    raise
                raise ObjectError("ClientError", str(error)) from error
            if piece is None:
                return
            yield piece
