"""CompressionType Gzip: objects are unpacked before they are cut."""

import zlib
from collections.abc import Iterator

from sagehen.services.sagemaker.transform.records.batches import RecordsError

__all__ = ["BrokenGzip", "Gunzip"]

_PIECE = 1 << 20
_SLICE = 1 << 18


class BrokenGzip(RecordsError):
    """A compressed object is no gzip, is damaged, or ends too early."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(
            f"The object is not valid gzip near byte {offset} of its compressed form: {reason}. "
            "If it is not compressed, set CompressionType to None.",
            0,
            offset,
        )


class Gunzip:
    """Unpacks one object of one or several members, which zeros may follow.

    Yields pieces of at most 1 MiB, however much the data swells: consume an iterator before the
    next feed. An empty object unpacks to nothing.
    """

    def __init__(self, piece: int = _PIECE) -> None:
        self._piece = piece
        self._member: zlib._Decompress | None = None
        self._members = 0
        self._fed = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Raises BrokenGzip while it is consumed."""
        # In slices: zlib copies the rest of its input after each piece of output.
        for at in range(0, len(data), _SLICE):
            part = data[at : at + _SLICE]
            self._fed += len(part)
            yield from self._unpack(part)

    def _unpack(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._member is None:
                data = self._next_member(data)
                continue
            try:
                unpacked = self._member.decompress(data, self._piece)
            except zlib.error as error:
                raise BrokenGzip(self._fed - len(data), str(error)) from None
            if unpacked:
                yield unpacked
            data = self._member.unconsumed_tail
            if self._member.eof:
                data = self._member.unused_data
                self._member = None

    def _next_member(self, data: bytes) -> bytes:
        if self._members:
            data = data.lstrip(b"\0")
        if data:
            self._member = zlib.decompressobj(wbits=31)
            self._members += 1
        return data

    def end(self) -> None:
        """Raises BrokenGzip if the last member is not complete."""
        if self._member is not None:
            raise BrokenGzip(self._fed, "it ends inside a member")
