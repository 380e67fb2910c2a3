"""Records of buckets, objects, uploads and listings."""

import ipaddress
import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

__all__ = [
    "ALWAYS",
    "NEW_BUCKET",
    "OWNED",
    "OWNER_CHARACTERS",
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
    """Whether a bucket has access control lists."""

    ENFORCED = "BucketOwnerEnforced"
    """Requests that set an access control list are refused."""
    PREFERRED = "BucketOwnerPreferred"
    WRITER = "ObjectWriter"


class PublicAccessBlock(msgspec.Struct, frozen=True, kw_only=True):
    """S3's four switches against public access."""

    block_public_acls: bool = False
    """refuses requests that set a public list"""
    ignore_public_acls: bool = False
    block_public_policy: bool = False
    restrict_public_buckets: bool = False


class BucketSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a bucket.

    The defaults are for buckets made before settings were kept, and allow access control lists, as
    AWS does for buckets made before April 2023.
    """

    ownership: Ownership | None = None
    """None after deletion of the controls, which allows lists"""
    acl: str = "private"
    """a canned list that grants more than the owner's control, or `private`"""
    public_access_block: PublicAccessBlock | None = None
    bucket_key: bool = False
    """BucketKeyEnabled of the default encryption"""
    blocked_encryptions: tuple[str, ...] = ()
    """BlockedEncryptionTypes of the default encryption"""
    encryption_was_set: bool = False
    """PutBucketEncryption allows copies of objects onto themselves"""
    location: str | None = None
    """GetBucketLocation's, if it is not the region"""
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


class ChecksumKind(StrEnum):
    """The coverage of a multipart object's checksum."""

    FULL_OBJECT = "FULL_OBJECT"
    """all bytes in order"""
    COMPOSITE = "COMPOSITE"
    """the parts' checksums"""


class Checksum(msgspec.Struct, frozen=True):
    """A stored checksum."""

    algorithm: str
    """a key of `digests.ALGORITHMS`"""
    value: str
    """base64, big-endian; a composite one ends in `-` and the number of parts"""
    kind: ChecksumKind = ChecksumKind.FULL_OBJECT


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """The attributes that a client gives an object."""

    headers: Mapping[str, str] = {}
    """headers that reads repeat, e.g. `content-type`"""
    metadata: Mapping[str, str] = {}
    """without `x-amz-meta-`"""
    tags: Mapping[str, str] = {}
    storage_class: str = "STANDARD"
    acl: str = "private"
    """as in BucketSettings"""


class Bucket(msgspec.Struct, frozen=True):
    name: str
    created_at: float
    """seconds since the epoch"""
    settings: BucketSettings = BucketSettings()


class ObjectInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An object without its bytes."""

    bucket: str
    key: str
    object_id: str
    """different for each write"""
    size: int
    etag: str
    """without quotes"""
    modified_at: float
    """seconds since the epoch"""
    attributes: Attributes = Attributes()
    checksum: Checksum | None = None


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """One file of an object or part."""

    blob_id: str
    owner_id: str
    """an `object_id` or `upload_id`"""
    number: int
    """part number; 1 for an object uploaded at once"""
    size: int
    etag: str
    modified_at: float
    checksum: str | None = None
    """base64"""


OWNED = "o"
"""begins the ids of owned uploads; others begin with a hexadecimal digit"""
OWNER_CHARACTERS = 32


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """A multipart upload under way."""

    upload_id: str
    bucket: str
    key: str
    started_at: float
    attributes: Attributes = Attributes()
    algorithm: str | None = None
    kind: ChecksumKind = ChecksumKind.FULL_OBJECT
    key_deleted: bool = False
    """An object of the key was deleted since the upload began."""

    @property
    def owner(self) -> str | None:
        """Returns what began the upload, if it said so: then that ends it, whatever happens."""
        if not self.upload_id.startswith(OWNED):
            return None
        return self.upload_id[1 : 1 + OWNER_CHARACTERS]


class WriteCondition(msgspec.Struct, frozen=True):
    """The conditions that must hold at the moment of the write."""

    absent: bool = False
    etag: str | None = None
    """the required ETag, or `*` for any"""


ALWAYS = WriteCondition()


class ListingQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a bucket to list. Keys sort by UTF-8 bytes."""

    prefix: str = ""
    delimiter: str = ""
    """Keys that hold it after the prefix are folded into common prefixes."""
    after: str = ""
    """exclusive; a common prefix stands for all that it folds"""
    limit: int = 1000


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    objects: list[ObjectInfo]
    common_prefixes: list[str]
    last: str = ""
    """the next query's `after`"""
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
    """Checks S3's rules for general purpose buckets."""
    return (
        _NAME.fullmatch(name) is not None
        and not any(pair in name for pair in ("..", ".-", "-."))
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
