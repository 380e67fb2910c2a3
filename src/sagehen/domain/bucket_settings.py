"""The settings of a bucket that are kept and described, and what a new bucket begins with."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

__all__ = ["NEW_BUCKET", "BucketSettings", "Ownership", "PublicAccessBlock"]


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
