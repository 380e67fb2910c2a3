"""Errors of the object store, which `services/s3/errors.py` maps to S3's codes.

SagehenError
├── NotFound:      NoSuchBucket, NoSuchKey, NoSuchUpload
├── AlreadyExists: BucketExists
├── Conflict:      BucketNotEmpty, ConditionConflict, ConditionFailed
├── Invalid:       BadCompletion, BadPart, BadPartOrder, PartTooSmall, DigestMismatch,
│                  KeyNotStorable
└── Unavailable:   StorageFull, NotSupported
"""

from sagehen.base.errors import AlreadyExists, Conflict, Invalid, NotFound, Unavailable

__all__ = [
    "BadCompletion",
    "BadPart",
    "BadPartOrder",
    "BucketExists",
    "BucketNotEmpty",
    "ConditionConflict",
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
    """The bucket has no such object."""


class NoSuchUpload(NotFound):
    """The upload is not under way."""


class BucketExists(AlreadyExists):
    """The bucket exists already."""


class BucketNotEmpty(Conflict):
    """The bucket holds objects."""


class ConditionFailed(Conflict):
    """A write's condition does not hold."""


class ConditionConflict(Conflict):
    """Another write since the upload began makes the condition of its completion void."""


class BadCompletion(Invalid):
    """A request to complete an upload does not fit the upload."""


class BadPart(Invalid):
    """A chosen part was not uploaded or differs."""

    def __init__(self, message: str, number: int = 0, etag: str = "") -> None:
        super().__init__(message)
        self.number = number
        self.etag = etag


class BadPartOrder(Invalid):
    """The parts are not ordered by number."""


class PartTooSmall(Invalid):
    """A part before the last is too small."""

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
    """The underlying store cannot hold the key."""


class NotSupported(Unavailable):
    """The underlying store lacks the operation."""


class StorageFull(Unavailable):
    """The disk is full."""
