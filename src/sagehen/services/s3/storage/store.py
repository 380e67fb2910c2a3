"""The interface of all object stores. Everything here blocks: call it from a thread."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from sagehen.services.s3.storage.files import Draft
from sagehen.services.s3.storage.records import (
    ALWAYS,
    NEW_BUCKET,
    Attributes,
    Blob,
    Bucket,
    BucketSettings,
    Listing,
    ListingQuery,
    ObjectInfo,
    Upload,
    WriteCondition,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sagehen.services.s3.storage.uploads import Completion, Uploads

__all__ = ["CHUNK_BYTES", "Copy", "ObjectStore", "OpenObject", "SmallObject"]

CHUNK_BYTES = 2**20
"""most bytes in memory at once while an object is read"""


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy inside the store."""

    source_bucket: str
    source_key: str
    bucket: str
    key: str
    describe: Callable[[ObjectInfo], Attributes]
    """Returns the copy's attributes, at the moment of the copy. An exception stops the copy, so
    conditions on the source belong here."""
    algorithm: str | None = None
    """of the copy's checksum; None keeps the source's"""
    condition: WriteCondition = ALWAYS


class SmallObject(msgspec.Struct, frozen=True):
    """An object in memory."""

    bucket: str
    key: str
    data: bytes
    attributes: Attributes


class OpenObject(Protocol):
    """An open object; overwriting the key does not affect reads."""

    @property
    def info(self) -> ObjectInfo: ...

    @property
    def parts(self) -> Sequence[Blob]:
        """Returns the parts, or nothing where the store does not know them."""

    def chunks(self, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yields at most CHUNK_BYTES at once."""

    def close(self) -> None: ...

    def __enter__(self) -> "OpenObject": ...

    def __exit__(self, *exc_info: object) -> None: ...


class ObjectStore(Protocol):
    """Buckets of objects. Errors are in `storage.errors`."""

    uploads: "Uploads"

    def create_bucket(self, name: str, settings: BucketSettings = NEW_BUCKET) -> Bucket:
        """Raises BucketExists."""

    def bucket(self, name: str) -> Bucket:
        """Raises NoSuchBucket."""

    def change_bucket(
        self, name: str, change: Callable[[BucketSettings], BucketSettings]
    ) -> Bucket:
        """Applies `change` in one transaction. Raises NoSuchBucket, and what `change` raises."""

    def buckets(self) -> list[Bucket]: ...

    def delete_bucket(self, name: str) -> None:
        """Ends the bucket's uploads. Raises NoSuchBucket, BucketNotEmpty."""

    def head(self, bucket: str, key: str) -> ObjectInfo:
        """Raises NoSuchBucket, NoSuchKey."""

    def open(self, bucket: str, key: str) -> OpenObject:
        """Raises NoSuchBucket, NoSuchKey."""

    def list_page(self, bucket: str, query: ListingQuery) -> Listing:
        """Raises NoSuchBucket."""

    def draft(self, algorithm: str | None = None) -> Draft:
        """Creates a draft to `put` or `discard`."""

    def put(
        self,
        bucket: str,
        key: str,
        draft: Draft,
        attributes: Attributes,
        condition: WriteCondition = ALWAYS,
    ) -> ObjectInfo:
        """The object is durable on return and absent after an error.

        Raises NoSuchBucket, ConditionFailed, NoSuchKey (a condition on an absent object),
        KeyNotStorable, StorageFull.
        """

    def put_rows(self, connection: "Connection", smalls: Sequence[SmallObject]) -> list[bool]:
        """Puts objects as part of a transaction on the state.

        Returns False for each that was not written: `put` raises the reason.
        """

    def read_rows(
        self, connection: "Connection", keys: Sequence[tuple[str, str]]
    ) -> list[SmallObject]:
        """Returns the objects that the transaction can read."""

    def copy(self, copy: Copy) -> ObjectInfo:
        """Raises what `head` and `put` raise."""

    def delete(self, bucket: str, keys: Sequence[str], condition: WriteCondition = ALWAYS) -> None:
        """Ignores missing objects. Raises NoSuchBucket, ConditionFailed."""

    def set_tags(self, bucket: str, key: str, tags: Mapping[str, str]) -> None:
        """Raises NoSuchBucket, NoSuchKey, NotSupported."""

    def set_acl(self, bucket: str, key: str, acl: str) -> None:
        """Raises NoSuchBucket, NoSuchKey, NotSupported."""

    def complete(self, upload: Upload, completion: "Completion") -> ObjectInfo:
        """Drops parts not chosen. Raises NoSuchUpload, and what `Uploads.check` and `put` raise."""

    def completed(self, bucket: str, key: str, upload_id: str) -> ObjectInfo:
        """Raises NoSuchUpload if another write made the object."""

    def recover(self) -> int:
        """Restores trashed files that have a row. Call before serving."""

    def sweep(self) -> int:
        """Moves files without a row to the trash and deletes expired trash; returns how many moved.
        Does nothing unless files and state are known to be a pair."""

    def measured(self) -> Mapping[str, Mapping[tuple[str, ...], float]]:
        """Returns metric values for Prometheus."""
