"""The `aws-chunked` encoding: a body in chunks, each perhaps signed, with trailers behind them.

<hex size>[;chunk-signature=…]\\r\\n <bytes> \\r\\n … 0[;chunk-signature=…]\\r\\n
[name:value\\r\\n …] [x-amz-trailer-signature:…\\r\\n] \\r\\n
"""

import hashlib
import re
from collections.abc import Iterator
from enum import Enum, auto

from sagehen.wire.errors import AwsError
from sagehen.wire.signatures.chunks import ChunkSignatures

__all__ = ["ChunkedDecoder"]

_MOST_LINE_BYTES = 2048
_MOST_TRAILERS = 8
_MOST_CHUNK_BYTES = 5 * 2**30
_TRAILER_SIGNATURE = "x-amz-trailer-signature"
_SIZE = re.compile(rb"[0-9a-fA-F]{1,16}")
"""Python's int also takes signs, blanks, underscores and `0x`."""
_SIGNATURE = re.compile(rb"chunk-signature=([0-9a-f]{64})")
_BLANKS = " \t"


class _Expecting(Enum):
    HEAD = auto()
    DATA = auto()
    DATA_END = auto()
    TRAILER = auto()
    NOTHING = auto()


class ChunkedDecoder:
    def __init__(self, signatures: ChunkSignatures | None) -> None:
        """`signatures` is None for unsigned chunks."""
        self.trailers: dict[str, str] = {}
        """by lower-case name; complete after `finish`"""
        self._signatures = signatures
        self._expecting = _Expecting.HEAD
        self._buffer = bytearray()
        self._left = 0
        self._signature = ""
        self._digest = hashlib.sha256()
        self._trailer_text = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields bytes before their signature is checked: use none before `finish`. Raises
        AwsError."""
        self._buffer += data
        while self._buffer:
            if self._expecting is _Expecting.NOTHING:
                raise _malformed()
            if self._expecting is _Expecting.DATA:
                yield self._take_data()
            elif (line := self._take_line()) is not None:
                self._read_line(line)
            else:
                return

    def finish(self) -> None:
        """Raises AwsError if the body is cut short."""
        if self._expecting is not _Expecting.NOTHING:
            raise AwsError(
                "IncompleteBody",
                "The request body terminated unexpectedly: its last chunk is missing.",
                400,
            )

    def _take_data(self) -> bytes:
        piece = bytes(memoryview(self._buffer)[: self._left])
        del self._buffer[: len(piece)]
        self._left -= len(piece)
        if self._signatures:
            self._digest.update(piece)
        if not self._left:
            self._expecting = _Expecting.DATA_END
        return piece

    def _take_line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n", 0, _MOST_LINE_BYTES)
        if end < 0:
            if len(self._buffer) >= _MOST_LINE_BYTES:
                raise _malformed()
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _read_line(self, line: bytes) -> None:
        if self._expecting is _Expecting.HEAD:
            self._read_head(line)
        elif self._expecting is _Expecting.DATA_END:
            if line:
                raise _malformed()
            self._verify_chunk()
            self._expecting = _Expecting.HEAD
        elif line:
            self._read_trailer(line)
        else:
            self._end()

    def _read_head(self, line: bytes) -> None:
        size, _, extension = line.partition(b";")
        if not _SIZE.fullmatch(size):
            raise _malformed()
        self._left = int(size, 16)
        if self._left > _MOST_CHUNK_BYTES:
            raise _malformed()
        signature = _SIGNATURE.fullmatch(extension)
        self._signature = signature[1].decode() if signature else ""
        if self._left:
            self._expecting = _Expecting.DATA
        else:
            self._verify_chunk()
            self._expecting = _Expecting.TRAILER

    def _verify_chunk(self) -> None:
        if self._signatures:
            self._signatures.check(self._signature, self._digest.hexdigest())
            self._digest = hashlib.sha256()

    def _read_trailer(self, line: bytes) -> None:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or len(self.trailers) == _MOST_TRAILERS:
            raise _malformed()
        name, value = name.strip(_BLANKS).lower(), value.strip(_BLANKS)
        if name in self.trailers:
            raise _malformed()
        self.trailers[name] = value
        if name != _TRAILER_SIGNATURE:
            self._trailer_text += f"{name}:{value}\n".encode("latin-1")

    def _end(self) -> None:
        self._expecting = _Expecting.NOTHING
        if self._signatures and self._trailer_text:
            signature = self.trailers.get(_TRAILER_SIGNATURE, "")
            self._signatures.check_trailer(signature, self._trailer_text)


def _malformed() -> AwsError:
    return AwsError(
        "InvalidRequest", "The body is not in the aws-chunked encoding that its headers say.", 400
    )
