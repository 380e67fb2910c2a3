"""The interface to S3 that the runner uses: `frame/s3_client.py`, or a fake in tests."""

from collections.abc import Sequence
from typing import Protocol

from sagehen.frame.s3_client import S3Page, S3Piece

__all__ = ["ObjectStore"]


class ObjectStore(Protocol):
    """All methods raise S3Error, or Unavailable after many tries."""

    async def list_page(self, bucket: str, prefix: str, after: str = "") -> S3Page: ...

    async def read(
        self, bucket: str, key: str, start: int, length: int, etag: str | None = None
    ) -> S3Piece: ...

    async def put(
        self, bucket: str, key: str, body: Sequence[bytes], content_type: str | None = None
    ) -> None: ...

    async def create_upload(
        self, bucket: str, key: str, content_type: str | None = None, owner: str | None = None
    ) -> str: ...

    async def upload_part(
        self, bucket: str, key: str, upload_id: str, number: int, body: Sequence[bytes]
    ) -> str: ...

    async def complete_upload(
        self, bucket: str, key: str, upload_id: str, etags: Sequence[str]
    ) -> None: ...

    async def abort_upload(self, bucket: str, key: str, upload_id: str) -> None: ...
