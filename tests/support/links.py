"""Links without sockets: pipes in memory, containers and gateways that a test plays by hand, and
requests that remember what came back."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from sagehen.link.frames import (
    FRAME_HEAD_BYTES,
    PREFACE,
    VERSION,
    WELCOME,
    Frame,
    FrameReader,
    encode_settings,
    read_settings,
)

__all__ = [
    "Container",
    "Dialler",
    "Pipe",
    "Request",
    "Serving",
    "connect",
    "frames_in",
    "interleaving",
    "serving",
    "settle",
]

PIECE_BYTES = 64 * 1024
HIGH_WATER_BYTES = 1024 * 1024


async def settle(turns: int = 20) -> None:
    """Lets the event loop turn until what was said has come across."""
    for _ in range(turns):
        await asyncio.sleep(0)


def frames_in(data: bytes) -> list[Frame]:
    """The frames of one side; fails unless `data` is nothing but whole frames."""
    reader = FrameReader()
    frames = reader.feed(bytes(data).removeprefix(PREFACE))
    assert reader.fault is None, reader.fault
    size = sum(FRAME_HEAD_BYTES + len(frame[4]) + len(frame[5]) for frame in frames)
    assert size == len(data) - (len(PREFACE) if data.startswith(PREFACE) else 0), "half a frame"
    return frames


class Pipe(asyncio.Transport):
    """One end of a stream in memory, which delivers a piece in each turn of the event loop."""

    def __init__(self, protocol: Any) -> None:
        super().__init__()
        self.protocol = protocol
        self.peer: Pipe | None = None
        """None: what is written is kept"""
        self.written = bytearray()
        self.writes = 0
        self.is_stalled = False
        """the other side does not read"""
        self.was_aborted = False
        self.is_paused = False
        """its owner does not want to read"""
        self._pending = bytearray()
        self._is_closing = False
        self._is_lost = False
        self._is_full = False

    @property
    def frames(self) -> list[Frame]:
        """all that were written"""
        return frames_in(self.written)

    @property
    def kinds(self) -> list[int]:
        return [frame[0] for frame in self.frames]

    @property
    def pending_bytes(self) -> int:
        return len(self._pending)

    @property
    def is_lost(self) -> bool:
        return self._is_lost

    def write(self, data: Any) -> None:
        assert not self._is_closing, "written behind the end"
        self.writes += 1
        self.written += data
        self._pending += data
        if len(self._pending) > HIGH_WATER_BYTES and not self._is_full:
            self._is_full = True
            self.protocol.pause_writing()
        self._go_on()

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(pieces))

    def go_on(self) -> None:
        """The other side reads again."""
        self.is_stalled = False
        self._go_on()

    def _go_on(self) -> None:
        asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        if self.is_stalled or self._is_lost:
            return
        piece = bytes(self._pending[:PIECE_BYTES])
        del self._pending[: len(piece)]
        if piece and self.peer is not None and not self.peer._is_closing:
            self.peer.protocol.data_received(piece)
        if self._is_full and len(self._pending) <= HIGH_WATER_BYTES // 4:
            self._is_full = False
            self.protocol.resume_writing()
        if self._pending:
            self._go_on()
        elif self._is_closing:
            self._lose()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._go_on()

    def abort(self) -> None:
        self.was_aborted = True
        self._is_closing = True
        self._pending.clear()
        asyncio.get_running_loop().call_soon(self._lose)

    def _lose(self) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self.protocol.connection_lost(None)
        self.protocol = None  # as real transports do
        if self.peer is not None:
            self.peer.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_write_buffer_size(self) -> int:
        return len(self._pending)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


def connect(one: Any, other: Any) -> tuple[Pipe, Pipe]:
    """A stream between two protocols."""
    pipes = Pipe(one), Pipe(other)
    pipes[0].peer, pipes[1].peer = pipes[1], pipes[0]
    other.connection_made(pipes[1])
    one.connection_made(pipes[0])
    return pipes


class Container(asyncio.Protocol):
    """A container that a test plays: it keeps the gateway's frames, and welcomes by itself."""

    def __init__(self, welcome: bytes | None = None) -> None:
        if welcome is None:
            welcome = encode_settings(WELCOME, {"version": VERSION, "marks": True})
        self._welcome = welcome
        self._received = bytearray()
        self.is_gone = False
        self.pipe: Pipe

    @property
    def frames(self) -> list[Frame]:
        """all but HELLO"""
        return frames_in(self._received)[1:]

    def numbers(self, kind: int) -> list[int]:
        return [frame[2] for frame in self.frames if frame[0] == kind]

    def send(self, *frames: bytes) -> None:
        """At once, as if it came in one piece."""
        assert self.pipe.peer is not None
        self.pipe.peer.protocol.data_received(b"".join(frames))

    def connection_made(self, transport: Any) -> None:
        self.pipe = transport

    def data_received(self, data: bytes) -> None:
        if not self._received and self._welcome:
            self.pipe.write(self._welcome)
        self._received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_gone = True


class Dialler:
    """`connect` is a connector: each connection is a pipe to what `peers` makes."""

    def __init__(self, make_peer: Callable[[], Any]) -> None:
        self._make_peer = make_peer
        self.peers: list[Any] = []
        self.streams: list[Any] = []
        self.pipes: list[tuple[Pipe, Pipe]] = []

    async def connect(self, address: str, make: Callable[[], Any], clock: Any) -> Any:
        peer = self._make_peer()
        stream = make()
        self.peers.append(peer)
        self.streams.append(stream)
        self.pipes.append(connect(stream, peer))
        return stream


class Request:
    """A request over a link, and what came back; it is its own waiter and receiver."""

    def __init__(
        self,
        client: Any,
        body: bytes = b"",
        lines: bytes = b"",
        path: bytes = b"/invocations",
        at_once: int | None = None,
    ) -> None:
        """`at_once`: bytes of the body that are sent at first."""
        self._path, self._lines, self._sent_body = path, lines, body
        self._at_once = at_once
        self._client = client
        self.call: Any = None
        self.was_refused = False
        self.events: list[str] = []
        self.status = 0
        self.headers: Any = None
        self.length: int | None = None
        self.pieces: list[bytes] = []
        self.raises_in = ""
        self.abandons_in = ""
        upstream = client.take(self)
        if upstream is not None:
            self.connected(upstream)

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def is_answered(self) -> bool:
        return "ends" in self.events

    @property
    def is_broken(self) -> bool:
        return "breaks" in self.events

    def connected(self, call: Any) -> None:
        self.call = call
        body = self._sent_body
        call.send(self, self._path, self._lines, [body[: self._at_once]], len(body))

    def refused(self) -> None:
        self.was_refused = True

    def answer_begins(self, status: int, headers: Any, length: int | None) -> None:
        self.status, self.headers, self.length = status, headers, length
        self._event("begins")

    def answer_continues(self, data: bytes) -> None:
        self.pieces.append(data)
        self._event("continues")

    def answer_ends(self) -> None:
        self._event("ends")

    def answer_breaks(self) -> None:
        self._event("breaks")

    def upstream_full(self) -> None:
        self._event("full")

    def upstream_drained(self) -> None:
        self._event("drained")

    def _event(self, name: str) -> None:
        self.events.append(name)
        if self.raises_in == name:
            raise RuntimeError(name)
        if self.abandons_in == name:
            self.call.abandon()


def interleaving(frames: list[Frame]) -> int:
    """How often the numbers of neighbouring frames differ."""
    return sum(one[2] != other[2] for one, other in pairwise(frames))


class Serving(asyncio.Protocol):
    """A container on a real socket; the test answers, by `answer(container, frame)`."""

    def __init__(self, folder: Path, answer: Callable[["Serving", Frame], None]) -> None:
        self._folder = folder
        self._answer = answer
        self._reader = FrameReader()
        self._is_first = True
        self.marks = -1
        """descriptor of the file of marks"""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data.removeprefix(PREFACE)):
            if self._is_first:
                self._is_first = False
                name = read_settings(frame[5])["begun"]
                self.marks = os.open(self._folder / name, os.O_RDWR)
                self.send(encode_settings(WELCOME, {"version": VERSION, "marks": True}))
            else:
                self._answer(self, frame)

    def send(self, *frames: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"".join(frames))

    def mark(self, number: int) -> None:
        os.pwrite(self.marks, (number >> 16).to_bytes(2, "little"), 2 * (number & 0xFFFF))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.marks >= 0:
            os.close(self.marks)


@asynccontextmanager
async def serving(
    path: Path, answer: Callable[[Serving, Frame], None]
) -> AsyncIterator[list[Serving]]:
    """Listens at `link:{path}`; gives all links that were opened."""
    links: list[Serving] = []

    def make() -> Serving:
        links.append(Serving(path.parent, answer))
        return links[-1]

    server = await asyncio.get_running_loop().create_unix_server(make, str(path))
    try:
        yield links
    finally:
        server.close()
        for link in links:
            link.transport.abort()
        await settle()
