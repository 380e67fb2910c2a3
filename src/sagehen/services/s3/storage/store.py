"""What an object store does, whichever it is. Everything here blocks: call it from a thread."""

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
"""How much of an object is in memory at once while it is read."""


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy to make inside the store."""

    source_bucket: str
    source_key: str
    bucket: str
    key: str
    describe: Callable[[ObjectInfo], Attributes]
    """Given the source in the instant of the copy: the copy's attributes. What it raises stops
    the copy, so conditions on the source belong here."""
    algorithm: str | None = None
    """Of the copy's checksum; the source's own where None."""
    condition: WriteCondition = ALWAYS


class SmallObject(msgspec.Struct, frozen=True):
    """An object that is all in memory."""

    bucket: str
    key: str
    data: bytes
    attributes: Attributes


class OpenObject(Protocol):
    """One object, held open: what is read belongs to `info`, whatever happens to the key."""

    @property
    def info(self) -> ObjectInfo: ...

    @property
    def parts(self) -> Sequence[Blob]:
        """The parts it was made of, where the store knows them."""

    def chunks(self, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Its bytes, from `offset` to the end or `length` of them, at most CHUNK_BYTES at once."""

    def close(self) -> None: ...

    def __enter__(self) -> "OpenObject": ...

    def __exit__(self, *exc_info: object) -> None: ...


class ObjectStore(Protocol):
    """Buckets of objects. Faults are those of `objects.faults`."""

    uploads: "Uploads"
    """Uploads in parts, up to their completion."""

    def create_bucket(self, name: str, settings: BucketSettings = NEW_BUCKET) -> Bucket:
        """Raises BucketExists."""

    def bucket(self, name: str) -> Bucket:
        """Raises NoSuchBucket."""

    def change_bucket(
        self, name: str, change: Callable[[BucketSettings], BucketSettings]
    ) -> Bucket:
        """Replace a bucket's settings by what `change` makes of them, in one transaction.

        Raises NoSuchBucket, and what `change` raises.
        """

    def buckets(self) -> list[Bucket]:
        """All buckets by name."""

    def delete_bucket(self, name: str) -> None:
        """Raises NoSuchBucket, BucketNotEmpty. Uploads under way in it end."""

    def head(self, bucket: str, key: str) -> ObjectInfo:
        """Raises NoSuchBucket, NoSuchKey."""

    def open(self, bucket: str, key: str) -> OpenObject:
        """Raises NoSuchBucket, NoSuchKey."""

    def list_page(self, bucket: str, query: ListingQuery) -> Listing:
        """Raises NoSuchBucket."""

    def draft(self, algorithm: str | None = None) -> Draft:
        """Where to write an object's bytes first; then `put` it, or `discard` it."""

    def put(
        self,
        bucket: str,
        key: str,
        draft: Draft,
        attributes: Attributes,
        condition: WriteCondition = ALWAYS,
    ) -> ObjectInfo:
        """Make the draft the object of that key: on disk when this returns, absent if it raises.

        Raises NoSuchBucket, ConditionFailed, NoSuchKey (a condition on an absent object),
        KeyNotStorable, StorageFull.
        """

    def put_rows(self, connection: "Connection", smalls: Sequence[SmallObject]) -> list[bool]:
        """Put objects as a part of a transaction of the state's: they are there once it is on disk.

        False where one has to be `put` by itself: nothing of it was written, and `put` says why.
        """

    def read_rows(
        self, connection: "Connection", places: Sequence[tuple[str, str]]
    ) -> list[SmallObject]:
        """Of the buckets and keys, those objects that a transaction of the state's can read."""

    def copy(self, copy: Copy) -> ObjectInfo:
        """Raises what `head` and `put` raise."""

    def delete(self, bucket: str, keys: Sequence[str], condition: WriteCondition = ALWAYS) -> None:
        """Delete the objects that are there. Raises NoSuchBucket, ConditionFailed."""

    def set_tags(self, bucket: str, key: str, tags: Mapping[str, str]) -> None:
        """Raises NoSuchBucket, NoSuchKey, NotSupported."""

    def set_acl(self, bucket: str, key: str, acl: str) -> None:
        """Keep a canned access control list with an object.

        Raises NoSuchBucket, NoSuchKey, NotSupported.
        """

    def complete(self, upload: Upload, completion: "Completion") -> ObjectInfo:
        """Make the object of an upload's parts; those not named are dropped.

        Raises what `Uploads.check` and `put` raise, and NoSuchUpload.
        """

    def completed(self, bucket: str, key: str, upload_id: str) -> ObjectInfo:
        """The object, if that upload made it. Raises NoSuchUpload where it did not."""

    def recover(self) -> int:
        """Take files out of the trash that have a row after all; how many. Call before serving."""

    def sweep(self) -> int:
        """Move files that no row names to the trash, and delete what has been there long enough;
        how many were moved. Nothing is done where files and state are not known to be a pair."""

    def measured(self) -> Mapping[str, Mapping[tuple[str, ...], float]]:
        """For Prometheus."""
