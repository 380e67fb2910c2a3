"""Messages between the server and its workers.

A worker answers a model's calls in order: of unanswered ones, only the first can have begun. A
frame is two lengths, the message in msgpack and the raw body.
"""

import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

import msgspec

__all__ = [
    "Abandon",
    "Answered",
    "BrokenFrame",
    "CallMessage",
    "FailedMessage",
    "FromWorker",
    "Load",
    "LoadedMessage",
    "MessageReader",
    "Over",
    "Piece",
    "Taken",
    "ToWorker",
    "Unload",
    "Unloaded",
    "frame",
]


class _Message(msgspec.Struct, array_like=True, gc=False):
    model: int
    """Never reused."""


class Load(_Message, tag=1):
    folder: str


class Unload(_Message, tag=2):
    pass


class CallMessage(_Message, tag=3):
    """Requests an answer; the request's body follows."""

    number: int
    """Unique within the model."""
    headers: Mapping[bytes, bytes]


class Taken(_Message, tag=4):
    """Acknowledges bytes of a stream."""

    number: int
    count: int


class Abandon(_Message, tag=5):
    """Cancels a stream."""

    number: int


class LoadedMessage(_Message, tag=6):
    pass


class FailedMessage(_Message, tag=7):
    """Reports a failed load, with the fields of LoadFailure."""

    message: str
    out_of_memory: bool
    summary: str
    lines: str
    permanent: bool


class Unloaded(_Message, tag=8):
    pass


class Answered(_Message, tag=9):
    """Carries an answer; its body, or first piece, follows."""

    status: int
    content_type: str
    headers: tuple[tuple[str, str], ...]
    close: bool
    seconds: float
    more: bool


class Piece(_Message, tag=10):
    pass


class Over(_Message, tag=11):
    """Ends a stream."""

    whole: bool


ToWorker = Load | Unload | CallMessage | Taken | Abandon
FromWorker = LoadedMessage | FailedMessage | Unloaded | Answered | Piece | Over


T = TypeVar("T")

MAX_MESSAGE_BYTES = 2**24
MAX_JOINED_BYTES = 32 * 1024
"""Smaller bodies are joined to their message, as one piece is quicker to send."""
_READ_BYTES = 64 * 1024
_LARGE_READ_BYTES = 1 << 20
_LENGTHS = struct.Struct("<II")
_encode = msgspec.msgpack.Encoder().encode


class BrokenFrame(Exception):
    """The input is no frame: other code writes to the socket too."""


def frame(message: msgspec.Struct, body: bytes = b"") -> list[bytes]:
    """Raises UnicodeEncodeError for lone surrogates."""
    encoded = _encode(message)
    lengths = _LENGTHS.pack(len(encoded), len(body))
    if len(body) <= MAX_JOINED_BYTES:
        return [lengths + encoded + body]
    return [lengths + encoded, body]


class MessageReader(Generic[T]):
    """Reads blocking and non-blocking sockets."""

    def __init__(self, source: socket.socket, decoder: msgspec.msgpack.Decoder[T]) -> None:
        self._source = source
        self._decode = decoder.decode
        self._partial = b""  # incomplete short frame; for long ones:
        self._message: T | None = None
        self._pieces: list[bytes] = []
        self._missing = 0

    def receive(self) -> list[tuple[T, bytes]]:
        """Reads once; returns complete messages and bodies.

        Raises EOFError at the end, BlockingIOError if no data is ready, and BrokenFrame.
        """
        if self._message is not None:
            return self._receive_long(self._message)
        data = self._source.recv(_READ_BYTES)
        if not data:
            raise EOFError
        return list(self._parse(self._partial + data if self._partial else data))

    def _parse(self, data: bytes) -> Iterator[tuple[T, bytes]]:
        at, available = 0, len(data)
        while available - at >= _LENGTHS.size:
            length, body_length = _LENGTHS.unpack_from(data, at)
            if length > MAX_MESSAGE_BYTES:
                raise BrokenFrame(f"a message of {length} bytes")
            start = at + _LENGTHS.size
            body = start + length
            end = body + body_length
            if end > available:
                if body_length > MAX_JOINED_BYTES and body <= available:
                    self._message = self._decoded(data[start:body])
                    self._pieces = [data[body:]]
                    self._missing = end - available
                    at = available
                break
            yield self._decoded(data[start:body]), data[body:end]
            at = end
        self._partial = data[at:]

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
        except msgspec.MsgspecError as error:
            raise BrokenFrame(str(error)) from error
