"""Open objects of the built-in store."""

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from sagehen.services.s3.storage.errors import NoSuchKey
from sagehen.services.s3.storage.files import BlobFiles
from sagehen.services.s3.storage.records import Blob, ObjectInfo
from sagehen.services.s3.storage.store import CHUNK_BYTES

__all__ = ["LocalObject"]

_MOST_OPEN_FILES = 64


class LocalObject:
    """An object held open by its files or in memory."""

    def __init__(
        self, info: ObjectInfo, parts: Sequence[Blob], files: BlobFiles, data: bytes | None
    ) -> None:
        """Raises FileNotFoundError if a file is gone."""
        self.info = info
        self.parts = parts
        self.data = data
        self._files = files
        self._open: dict[str, BinaryIO] = {}
        try:
            # Bounds open descriptors. Reading later parts fails if the object was deleted.
            for blob in parts[:_MOST_OPEN_FILES]:
                self._open[blob.blob_id] = files.open(blob.blob_id)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "LocalObject":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def chunks(self, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        left = self.info.size - offset if length is None else length
        if self.data is not None and left > 0:
            yield self.data[offset : offset + left]
        for blob in self.parts:
            if offset >= blob.size:
                offset -= blob.size
                continue
            take = min(left, blob.size - offset)
            if take <= 0:
                return
            yield from self._read(blob, offset, take)
            left -= take
            offset = 0

    def link(self, blob: Blob) -> str:
        """Raises NoSuchKey if the object is gone."""
        try:
            return self._files.link(blob.blob_id)
        except FileNotFoundError:
            raise NoSuchKey(f"The object {self.info.key} was replaced meanwhile.") from None

    def _read(self, blob: Blob, offset: int, length: int) -> Iterator[bytes]:
        file = self._open.get(blob.blob_id) or self._files.open(blob.blob_id)
        try:
            file.seek(offset)
            while length:
                chunk = file.read(min(CHUNK_BYTES, length))
                if not chunk:
                    raise OSError(f"The blob {blob.blob_id} is shorter than its row says.")
                length -= len(chunk)
                yield chunk
        finally:
            if blob.blob_id not in self._open:
                file.close()
