"""What can go wrong in the object store. Whoever serves S3 gives these their codes.

SagehenError
├── NotFound:      NoSuchBucket, NoSuchKey, NoSuchUpload
├── AlreadyExists: BucketExists
├── Conflict:      BucketNotEmpty, ConditionFailed
├── Invalid:       BadPart, BadPartOrder, PartTooSmall, DigestMismatch, KeyNotStorable
└── Unavailable:   StorageFull, NotSupported
"""

from sagehen.base.errors import AlreadyExists, Conflict, Invalid, NotFound, Unavailable

__all__ = [
    "BadPart",
    "BadPartOrder",
    "BucketExists",
    "BucketNotEmpty",
    "ConditionFailed",
    "DigestMismatch",
    "KeyNotStorable",
    "NoSuchBucket",
    "NoSuchKey",
    "NoSuchUpload",
    "NotSupported",
    "PartTooSmall",
    "StorageFull",
]


class NoSuchBucket(NotFound):
    """The bucket does not exist."""


class NoSuchKey(NotFound):
    """The bucket holds no object of that key."""


class NoSuchUpload(NotFound):
    """The upload id is not under way for the key."""


class BucketExists(AlreadyExists):
    """The bucket exists already."""


class BucketNotEmpty(Conflict):
    """The bucket holds objects."""


class ConditionFailed(Conflict):
    """The condition of a write does not hold."""


class BadPart(Invalid):
    """A chosen part was not uploaded, or differs from what was uploaded."""

    def __init__(self, message: str, number: int = 0, etag: str = "") -> None:
        super().__init__(message)
        self.number = number
        self.etag = etag
        """as the client named it"""


class BadPartOrder(Invalid):
    """The chosen parts are not in the order of their numbers."""


class PartTooSmall(Invalid):
    """A part other than the last is smaller than the minimum."""

    def __init__(
        self, message: str, number: int = 0, etag: str = "", size: int = 0, least: int = 0
    ) -> None:
        super().__init__(message)
        self.number = number
        self.etag = etag
        self.size = size
        """bytes, like `least`"""
        self.least = least


class DigestMismatch(Invalid):
    """The bytes do not match the client's checksum."""


class KeyNotStorable(Invalid):
    """The underlying store cannot hold an object of that key."""


class NotSupported(Unavailable):
    """The underlying store lacks the operation."""


class StorageFull(Unavailable):
    """The disk is full."""
