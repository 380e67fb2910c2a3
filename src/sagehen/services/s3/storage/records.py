"""What the object store keeps: buckets, objects, uploads in parts, and pages of their names.

What a bucket may be called.

The settings of a bucket that are kept and described, and what a new bucket begins with.
"""

import ipaddress
import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

__all__ = [
    "ALWAYS",
    "NEW_BUCKET",
    "Attributes",
    "Blob",
    "Bucket",
    "BucketSettings",
    "Checksum",
    "ChecksumKind",
    "Listing",
    "ListingQuery",
    "ObjectInfo",
    "Ownership",
    "PublicAccessBlock",
    "Upload",
    "UploadListing",
    "WriteCondition",
    "is_bucket_name",
]


class Ownership(StrEnum):
    """S3's ObjectOwnership: whether a bucket has access control lists at all."""

    ENFORCED = "BucketOwnerEnforced"
    """It has none: a request that sets one is refused."""
    PREFERRED = "BucketOwnerPreferred"
    WRITER = "ObjectWriter"


class PublicAccessBlock(msgspec.Struct, frozen=True, kw_only=True):
    """S3's four switches against public access."""

    block_public_acls: bool = False
    """Refuses requests that set a public access control list."""
    ignore_public_acls: bool = False
    block_public_policy: bool = False
    restrict_public_buckets: bool = False


class BucketSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What was set on a bucket.

    The defaults are those of a bucket that was made before its settings were kept. As AWS did when
    it changed the defaults of new buckets, in April 2023, such a bucket goes on to take access
    control lists.
    """

    ownership: Ownership | None = None
    """None where the controls were deleted; access control lists are taken then."""
    acl: str = "private"
    """A canned access control list that grants more than the owner's control, or `private`."""
    public_access_block: PublicAccessBlock | None = None
    bucket_key: bool = False
    """BucketKeyEnabled of the default encryption, which is always AES256."""
    blocked_encryptions: tuple[str, ...] = ()
    """BlockedEncryptionTypes of the default encryption."""
    versioning_suspended: bool = False
    tags: Mapping[str, str] = {}

    @property
    def takes_acls(self) -> bool:
        return self.ownership is not Ownership.ENFORCED


NEW_BUCKET = BucketSettings(
    ownership=Ownership.ENFORCED,
    public_access_block=PublicAccessBlock(
        block_public_acls=True,
        ignore_public_acls=True,
        block_public_policy=True,
        restrict_public_buckets=True,
    ),
)
"""What a bucket begins with that is made without settings of its own."""


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


_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_RESERVED_STARTS = ("xn--", "sthree-", "amzn-s3-demo-")
_RESERVED_ENDS = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")


def is_bucket_name(name: str) -> bool:
    """Whether S3's rules for general purpose buckets allow it."""
    return (
        _NAME.fullmatch(name) is not None
        and ".." not in name
        and not name.startswith(_RESERVED_STARTS)
        and not name.endswith(_RESERVED_ENDS)
        and not _is_address(name)
    )


def _is_address(name: str) -> bool:
    try:
        ipaddress.IPv4Address(name)
    except ValueError:
        return False
    return True
