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
    """There is no bucket of that name."""


class NoSuchKey(NotFound):
    """The bucket holds no object of that key."""


class NoSuchUpload(NotFound):
    """No upload of that id is under way for the key."""


class BucketExists(AlreadyExists):
    """There is a bucket of that name already."""


class BucketNotEmpty(Conflict):
    """The bucket holds objects."""


class ConditionFailed(Conflict):
    """What the write was to depend on does not hold."""


class BadPart(Invalid):
    """A part that is to be joined was not uploaded, or differs from what was uploaded."""

    def __init__(self, message: str, number: int = 0, etag: str = "") -> None:
        super().__init__(message)
        self.number = number
        self.etag = etag
        """As the client named it."""


class BadPartOrder(Invalid):
    """The parts to be joined are not in the order of their numbers."""


class PartTooSmall(Invalid):
    """A part that is not the last is under the least size."""

    def __init__(
        self, message: str, number: int = 0, etag: str = "", size: int = 0, least: int = 0
    ) -> None:
        super().__init__(message)
        self.number = number
        self.etag = etag
        self.size = size
        """Bytes, as is `least`."""
        self.least = least


class DigestMismatch(Invalid):
    """The bytes do not have the checksum that the client gave for them."""


class KeyNotStorable(Invalid):
    """The store behind cannot hold an object of that key."""


class NotSupported(Unavailable):
    """The store behind has no such operation."""


class StorageFull(Unavailable):
    """There is no room on the disk."""
