"""Batches of records, cutters that make them, and the errors of an object that cannot be cut.

RecordsError
├── RecordTooLarge
├── BrokenRecords
└── BrokenGzip (gzip)
"""

from typing import Protocol

import msgspec

from sagehen.base.errors import SagehenError

__all__ = ["UNLIMITED", "Batch", "BrokenRecords", "Cutter", "RecordTooLarge", "RecordsError"]

UNLIMITED = 0
"""as `max_payload_bytes`"""


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Records of one object that go to the container in one request."""

    payload: bytes
    records: int
    first_record: int
    """within the object, from 0"""


class Cutter(Protocol):
    """Cuts one object. Batches depend on its bytes only, not on how they are divided into feeds.

    A cutter holds at most one payload and what it was fed last. After an error it is of no use.
    """

    def feed(self, data: bytes) -> list[Batch]:
        """Raises RecordsError."""
        ...

    def end(self) -> list[Batch]:
        """Raises RecordsError."""
        ...


class RecordsError(SagehenError):
    """An object does not hold records as its job describes them."""

    def __init__(self, message: str, record: int, offset: int) -> None:
        super().__init__(message)
        self.record = record
        """within the object, from 0"""
        self.offset = offset
        """of the record, or of what is wrong in it; bytes, in the uncompressed object"""


class RecordTooLarge(RecordsError):
    """A record has more bytes than a payload may have."""

    def __init__(self, record: int, offset: int, limit: int, hint: str = "") -> None:
        super().__init__(
            f"Record {record}, which begins at byte {offset}, is larger than the {limit} bytes "
            f"that MaxPayloadInMB allows. Raise MaxPayloadInMB, or make the records smaller.{hint}",
            record,
            offset,
        )


class BrokenRecords(RecordsError):
    """The bytes are no records of the job's SplitType."""

    def __init__(self, record: int, offset: int, reason: str) -> None:
        super().__init__(f"Record {record} at byte {offset}: {reason}.", record, offset)
