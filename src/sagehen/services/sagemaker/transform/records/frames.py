"""Objects of binary frames: SplitType RecordIO and TFRecord.

RecordIO is MXNet's: a magic number, a length whose upper three bits number the parts of a record,
the part, padding to four bytes. Writers divide a record where it holds the magic number itself.
TFRecord is TensorFlow's: a length with its checksum, the record with its checksum.
"""

import struct
from typing import NamedTuple, Protocol

from awscrt.checksums import crc32c

from sagehen.services.sagemaker.transform.records.batches import (
    Batch,
    BrokenRecords,
    RecordTooLarge,
)

__all__ = ["FrameCutter", "FrameFormat", "RecordIOFrames", "TFRecordFrames"]


class FrameError(Exception):
    """A frame is broken: what is wrong, and where, counted from its first byte."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.at = at


class _Frame(NamedTuple):
    size: int
    """with head, checksums and padding"""
    content_at: int
    content_size: int
    is_first: bool = True
    """of its record"""
    is_last: bool = True


class FrameFormat(Protocol):
    head_size: int
    joint: bytes
    """what stood in the record where it was divided"""

    def read_head(self, data: bytes, at: int, *, is_first: bool) -> _Frame:
        """`is_first`: the frame has to begin a record. Raises FrameError."""
        ...

    def check(self, data: bytes, at: int, frame: _Frame) -> None:
        """Raises FrameError."""
        ...


class RecordIOFrames:
    head_size = 8
    joint = struct.pack("<I", 0xCED7230A)
    _HEAD = struct.Struct("<4sI")
    _WHOLE, _FIRST, _MIDDLE, _LAST = range(4)

    def read_head(self, data: bytes, at: int, *, is_first: bool) -> _Frame:
        magic, word = self._HEAD.unpack_from(data, at)
        if magic != self.joint:
            number = int.from_bytes(magic, "little")
            raise FrameError(f"the magic number is {number:#010x}, not 0xced7230a", 0)
        part, length = word >> 29, word & 0x1FFFFFFF
        expected = (self._WHOLE, self._FIRST) if is_first else (self._MIDDLE, self._LAST)
        if part not in expected:
            raise FrameError(f"the part flag is {part}, not {expected[0]} or {expected[1]}", 4)
        return _Frame(
            8 + (length + 3) // 4 * 4, 8, length, is_first, part in (self._WHOLE, self._LAST)
        )

    def check(self, data: bytes, at: int, frame: _Frame) -> None:
        """RecordIO has no checksum, and says nothing of what the padding holds."""


class TFRecordFrames:
    head_size = 12
    joint = b""
    _HEAD = struct.Struct("<QI")
    _CHECKSUM = struct.Struct("<I")

    def read_head(self, data: bytes, at: int, *, is_first: bool) -> _Frame:
        length, checksum = self._HEAD.unpack_from(data, at)
        if checksum != masked_crc(data[at : at + 8]):
            raise FrameError("the checksum of the length is wrong", 0)
        return _Frame(length + 16, 12, length)

    def check(self, data: bytes, at: int, frame: _Frame) -> None:
        end = at + 12 + frame.content_size
        (checksum,) = self._CHECKSUM.unpack_from(data, end)
        if checksum != masked_crc(data[at + 12 : end]):
            raise FrameError("the checksum of the data is wrong", 12)


def masked_crc(data: bytes) -> int:
    """TFRecord's: rotated, so that a checksum over data that holds checksums is still of use."""
    crc: int = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class FrameCutter:
    """Cuts frames into batches: the contents of one record, or the frames of several as they stand.

    The limit is held against payloads: without frames for single records, with them for several.
    """

    def __init__(self, frames: FrameFormat, limit: int, *, single: bool) -> None:
        self._frames = frames
        self._limit = limit
        self._single = single
        self._pieces: list[bytes] = []
        self._size = 0
        self._needed = frames.head_size
        self._offset = 0
        self._batch: list[bytes] = []
        self._batch_size = 0
        self._batch_records = 0
        self._record: list[bytes] = []
        """its parts so far: contents for single records, else whole frames"""
        self._record_size = 0
        self._record_offset = 0
        self._records = 0

    def feed(self, data: bytes) -> list[Batch]:
        self._pieces.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return []
        buffer = b"".join(self._pieces)
        batches: list[Batch] = []
        at = self._cut(buffer, batches)
        self._pieces = [buffer[at:]]
        self._size -= at
        self._needed -= at
        self._offset += at
        return batches

    def end(self) -> list[Batch]:
        if self._size or self._record:
            at = self._record_offset if self._record else self._offset
            raise BrokenRecords(self._records, at, "the object ends inside the record")
        return self._flush()

    def _cut(self, buffer: bytes, batches: list[Batch]) -> int:
        """Returns the number of bytes that are done with."""
        at = 0
        while True:
            self._needed = at + self._frames.head_size
            if len(buffer) < self._needed:
                return at
            try:
                frame = self._frames.read_head(buffer, at, is_first=not self._record)
                self._make_room(frame, self._offset + at, batches)
                self._needed = at + frame.size
                if len(buffer) < self._needed:
                    return at
                self._frames.check(buffer, at, frame)
            except FrameError as error:
                raise BrokenRecords(
                    self._records, self._offset + at + error.at, str(error)
                ) from None
            self._add(buffer, at, frame, batches)
            at += frame.size

    def _make_room(self, frame: _Frame, offset: int, batches: list[Batch]) -> None:
        """Ends the batch if the record does not fit into it. Raises RecordTooLarge."""
        if frame.is_first:
            self._record_offset = offset
        size = self._record_size + (frame.content_size if self._single else frame.size)
        if self._single and not frame.is_last:
            size += len(self._frames.joint)
        if size > self._limit:
            raise RecordTooLarge(self._records, self._record_offset, self._limit)
        if self._batch_size + size > self._limit:
            batches += self._flush()

    def _add(self, buffer: bytes, at: int, frame: _Frame, batches: list[Batch]) -> None:
        if self._single:
            begin = at + frame.content_at
            part = buffer[begin : begin + frame.content_size]
            self._record.append(part if frame.is_last else part + self._frames.joint)
        else:
            self._record.append(buffer[at : at + frame.size])
        self._record_size += len(self._record[-1])
        if not frame.is_last:
            return
        if self._single:
            batches.append(Batch(b"".join(self._record), 1, self._records))
        else:
            self._batch += self._record
            self._batch_size += self._record_size
            self._batch_records += 1
        self._record = []
        self._record_size = 0
        self._records += 1

    def _flush(self) -> list[Batch]:
        if not self._batch:
            return []
        first = self._records - self._batch_records
        batch = Batch(b"".join(self._batch), self._batch_records, first)
        self._batch, self._batch_size, self._batch_records = [], 0, 0
        return [batch]
