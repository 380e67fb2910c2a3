"""The pipe between control and the runner: lines of JSON both ways."""

import asyncio
import os
from collections.abc import AsyncGenerator

import msgspec

from sagehen.services.sagemaker.transform.runner_messages import Instances, RunnerSpec, Stop

__all__ = ["MessageWriter", "decode_line", "read_lines", "read_spec"]

MAX_LINE_BYTES = 2**28
"""a specification names every key that is done out of turn"""

_encoder = msgspec.json.Encoder()
_decode_message = msgspec.json.Decoder(Instances | Stop).decode
_decode_spec = msgspec.json.Decoder(RunnerSpec).decode


class _WriteProtocol(asyncio.BaseProtocol):
    def __init__(self) -> None:
        self.drained = asyncio.Event()
        self.drained.set()

    def pause_writing(self) -> None:
        self.drained.clear()

    def resume_writing(self) -> None:
        self.drained.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.drained.set()


class MessageWriter:
    """Writes messages to a file descriptor; never waits for the reader.

    A reader that has ended is no error here: the other pipe says so.
    """

    def __init__(self, transport: asyncio.WriteTransport, protocol: _WriteProtocol) -> None:
        self._transport = transport
        self._protocol = protocol
        transport.set_write_buffer_limits(high=0)

    @classmethod
    async def open(cls, descriptor: int) -> "MessageWriter":
        file = os.fdopen(descriptor, "wb", buffering=0)
        loop = asyncio.get_running_loop()
        return cls(*await loop.connect_write_pipe(_WriteProtocol, file))

    def tell(self, message: msgspec.Struct) -> None:
        self._transport.write(_encoder.encode(message) + b"\n")

    async def close(self) -> None:
        """Returns when everything is written, or nobody reads."""
        await self._protocol.drained.wait()
        self._transport.close()


async def read_lines(descriptor: int) -> AsyncGenerator[bytes]:
    """Yields lines until the writer ends."""
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    loop = asyncio.get_running_loop()
    file = os.fdopen(descriptor, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    try:
        while line := await reader.readline():
            yield line
    finally:
        transport.close()


def read_spec(line: bytes) -> RunnerSpec:
    """Raises msgspec.MsgspecError."""
    return _decode_spec(line)


def decode_line(line: bytes) -> Instances | Stop:
    """Raises msgspec.MsgspecError."""
    message: Instances | Stop = _decode_message(line)
    return message
