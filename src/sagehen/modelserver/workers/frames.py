"""Messages on a stream socket: two lengths, the message in msgpack, the body as it is."""

import socket
import struct
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

__all__ = ["BrokenFrame", "FrameReader", "frame"]

T = TypeVar("T")

LONGEST_MESSAGE = 2**24
JOINED_BYTES = 32 * 1024
"""A body up to here is copied to its message: one piece is quicker to send than two."""
_READ_BYTES = 64 * 1024
_LARGE_READ_BYTES = 1 << 20
_LENGTHS = struct.Struct("<II")
_encode = msgspec.msgpack.Encoder().encode


class BrokenFrame(Exception):
    """What came is no frame: somebody else writes to the socket too."""


def frame(message: msgspec.Struct, body: bytes = b"") -> list[bytes]:
    """What to send, in one piece or two. Raises UnicodeEncodeError for text that is none."""
    encoded = _encode(message)
    lengths = _LENGTHS.pack(len(encoded), len(body))
    if len(body) <= JOINED_BYTES:
        return [lengths + encoded + body]
    return [lengths + encoded, body]


class FrameReader(Generic[T]):
    """The messages that come from a socket, which may block or not."""

    def __init__(self, source: socket.socket, decoder: msgspec.msgpack.Decoder[T]) -> None:
        self._source = source
        self._decode = decoder.decode
        self._begun = b""  # a frame that is not whole yet, unless it is a long one:
        self._message: T | None = None
        self._pieces: list[bytes] = []
        self._missing = 0

    def receive(self) -> list[tuple[T, bytes]]:
        """What one reading brings, with bodies; may be nothing yet.

        Raises:
            EOFError: the other end is closed.
            BlockingIOError: there is nothing, and the socket does not block.
            BrokenFrame
        """
        if self._message is not None:
            return self._receive_long(self._message)
        data = self._source.recv(_READ_BYTES)
        if not data:
            raise EOFError
        return list(self._parse(self._begun + data if self._begun else data))

    def _parse(self, data: bytes) -> Iterator[tuple[T, bytes]]:
        at, available = 0, len(data)
        while available - at >= _LENGTHS.size:
            length, body_length = _LENGTHS.unpack_from(data, at)
            if length > LONGEST_MESSAGE:
                raise BrokenFrame(f"a message of {length} bytes")
            start = at + _LENGTHS.size
            body = start + length
            end = body + body_length
            if end > available:
                if body_length > JOINED_BYTES and body <= available:
                    self._message = self._decoded(data[start:body])
                    self._pieces = [data[body:]]
                    self._missing = end - available
                    at = available
                break
            yield self._decoded(data[start:body]), data[body:end]
            at = end
        self._begun = data[at:]

    def _receive_long(self, message: T) -> list[tuple[T, bytes]]:
        piece = self._source.recv(min(self._missing, _LARGE_READ_BYTES))
        if not piece:
            raise EOFError
        self._pieces.append(piece)
        self._missing -= len(piece)
        if self._missing:
            return []
        body = b"".join(self._pieces)
        self._message, self._pieces = None, []
        return [(message, body)]

    def _decoded(self, message: bytes) -> T:
        try:
            return self._decode(message)
        except msgspec.MsgspecError as problem:
            raise BrokenFrame(str(problem)) from problem
