"""What the object store keeps: buckets, objects, uploads in parts, and pages of their names."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from sagehen.domain.bucket_settings import BucketSettings

__all__ = [
    "ALWAYS",
    "Attributes",
    "Blob",
    "Bucket",
    "Checksum",
    "ChecksumKind",
    "Listing",
    "ListingQuery",
    "ObjectInfo",
    "Upload",
    "UploadListing",
    "WriteCondition",
]


class ChecksumKind(StrEnum):
    """How the checksum of an object that came in parts was made."""

    FULL_OBJECT = "FULL_OBJECT"
    """Over all bytes in their order, as for an object that came in one piece."""
    COMPOSITE = "COMPOSITE"
    """Over the checksums of the parts."""


class Checksum(msgspec.Struct, frozen=True):
    """A checksum that travels with an object."""

    algorithm: str
    """As in `objects.digests.ALGORITHMS`."""
    value: str
    """Base64 of the big-endian bytes; for a composite one, with `-` and the number of parts."""
    kind: ChecksumKind = ChecksumKind.FULL_OBJECT


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """What a client says about an object when it writes it, kept as said."""

    headers: Mapping[str, str] = {}
    """Those that a read repeats: `content-type`, `cache-control`, encryption and the like."""
    metadata: Mapping[str, str] = {}
    """The user's own, without `x-amz-meta-`."""
    tags: Mapping[str, str] = {}
    storage_class: str = "STANDARD"
    acl: str = "private"
    """A canned access control list that grants more than the owner's control, or `private`."""


class Bucket(msgspec.Struct, frozen=True):
    name: str
    created_at: float
    """Seconds since the epoch."""
    settings: BucketSettings = BucketSettings()


class ObjectInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An object without its bytes."""

    bucket: str
    key: str
    object_id: str
    """Of one write: another write of the same key has another."""
    size: int
    etag: str
    """Without quotes."""
    modified_at: float
    """Seconds since the epoch."""
    attributes: Attributes = Attributes()
    checksum: Checksum | None = None


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """One file of bytes: an object's, or one of the parts that make or will make one."""

    blob_id: str
    owner_id: str
    """An `object_id` or `upload_id`."""
    number: int
    """The part number; 1 for an object that came in one piece."""
    size: int
    etag: str
    modified_at: float
    checksum: str | None = None
    """Base64, of the object's or upload's algorithm."""


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is coming in parts."""

    upload_id: str
    bucket: str
    key: str
    started_at: float
    attributes: Attributes = Attributes()
    algorithm: str | None = None
    kind: ChecksumKind = ChecksumKind.FULL_OBJECT


class WriteCondition(msgspec.Struct, frozen=True):
    """What must hold of the key, in the instant of the write, for the write to happen."""

    absent: bool = False
    etag: str | None = None
    """The ETag that the object must have now, or `*` for any."""


ALWAYS = WriteCondition()
"""The condition that holds of every key."""


class ListingQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What part of a bucket to list. Keys are in the order of their UTF-8 bytes."""

    prefix: str = ""
    delimiter: str = ""
    """Where not empty, keys that hold it behind the prefix are folded into common prefixes."""
    after: str = ""
    """Only names greater than this one; a common prefix stands for all that it folds."""
    limit: int = 1000


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    objects: list[ObjectInfo]
    common_prefixes: list[str]
    last: str = ""
    """The last name given, to be the next query's `after`."""
    truncated: bool = False


class UploadListing(msgspec.Struct, frozen=True, kw_only=True):
    uploads: list[Upload]
    common_prefixes: list[str]
    last_key: str = ""
    last_upload_id: str = ""
    truncated: bool = False
