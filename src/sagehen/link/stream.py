"""One side of a link: sends once in a turn of the event loop, and paces large bodies."""

import asyncio
import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import cast

from sagehen.link.frames import (
    DATA,
    END,
    INLINE_BYTES,
    WINDOW_BYTES,
    Frame,
    FrameReader,
    LinkError,
    encode_frame,
    encode_parts,
    encode_refusal,
    encode_window,
)

__all__ = ["BodyReceiver", "BodySender", "FrameStream"]

log = logging.getLogger(__name__)

WRITE_BUFFER_BYTES = 1024 * 1024
"""may wait for the peer before large bodies pause; small messages never do"""
JOINED_BYTES = 64 * 1024
"""less than this is copied together to save a system call"""
COPIED_BYTES = 16 * 1024
"""a smaller body is copied behind its head"""
REFUSAL_SECONDS = 2.0
"""for a peer to read why the link is ended; it may not read at all"""


class FrameStream(asyncio.Protocol):
    """Sends and receives frames; subclasses say what they mean."""

    __slots__ = (
        "_blocked_senders",
        "_is_flush_scheduled",
        "_is_full",
        "_loop",
        "_outgoing",
        "_outgoing_bytes",
        "_reader",
        "_transport",
    )

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._outgoing: list[bytes | memoryview] = []
        self._outgoing_bytes = 0
        self._is_flush_scheduled = False
        self._is_full = False
        self._blocked_senders: deque[BodySender] = deque()

    # For subclasses

    @abstractmethod
    def handle_frames(self, frames: list[Frame]) -> None:
        """Raises LinkError."""

    def send(self, frame: bytes | memoryview) -> None:
        """Sends with all else that this turn of the event loop has to send."""
        self._outgoing.append(frame)
        self._outgoing_bytes += len(frame)
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self.flush)

    def send_large(
        self,
        kind: int,
        number: int,
        head: bytes = b"",
        body: bytes | memoryview = b"",
        status: int = 0,
        flags: int = 0,
    ) -> None:
        """Sends a frame whose body may be large."""
        if len(body) < COPIED_BYTES:
            self.send(encode_frame(kind, number, head, body, status, flags))
            return
        for part in encode_parts(kind, number, head, body, status, flags):
            if part:
                self.send(part)

    def flush(self) -> None:
        self._is_flush_scheduled = False
        self.before_flush()
        frames, self._outgoing = self._outgoing, []
        size, self._outgoing_bytes = self._outgoing_bytes, 0
        if not frames or self._transport.is_closing():
            return
        if len(frames) == 1:
            self._transport.write(frames[0])
        elif size <= JOINED_BYTES:
            self._transport.write(b"".join(frames))
        else:
            self._transport.writelines(frames)

    def before_flush(self) -> None:
        """Called once in a turn, to add what goes with its frames."""

    def refuse(self, reason: str) -> None:
        """Tells the peer why, and ends the link."""
        # A log cannot hold lone surrogates, which JSON of the peer can.
        log.warning("A link is ended: %s", reason.encode(errors="backslashreplace").decode())
        if not self._transport.is_closing():
            self.send(encode_refusal(reason))
            self.flush()
            self._loop.call_later(REFUSAL_SECONDS, self._transport.abort)
        self._transport.close()

    @property
    def is_full(self) -> bool:
        """Whether the peer does not read as fast as it is sent to."""
        return self._is_full or self._outgoing_bytes >= WRITE_BUFFER_BYTES

    def wait_for_room(self, sender: "BodySender") -> None:
        """Has a large body continued when the peer has read."""
        self._blocked_senders.append(sender)
        if not self._is_full:
            # Only this turn's frames are many: the next turn has room.
            self._loop.call_soon(self._continue_senders)

    def _continue_senders(self) -> None:
        # Those that block again come behind the others.
        for _ in range(len(self._blocked_senders)):
            if self.is_full:
                return
            self._blocked_senders.popleft().continue_sending()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        try:
            self.handle_frames(reader.feed(data))
        except LinkError as error:
            reader.fault = str(error)
        if reader.fault is not None:
            self.refuse(reader.fault)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._continue_senders()


class BodySender:
    """Sends a large body as the receiver allows.

    Args:
        drained: called when all that had to wait is sent: more may be added, or the body is sent.
    """

    __slots__ = ("_drained", "_ends", "_is_waiting", "_pieces", "_stream", "_window", "number")

    def __init__(
        self, stream: FrameStream, number: int, drained: Callable[[], None] | None = None
    ) -> None:
        self._stream: FrameStream | None = stream
        self.number = number
        self._drained = drained
        self._pieces: deque[memoryview] = deque()
        self._window = WINDOW_BYTES
        self._ends = False
        self._is_waiting = False
        """for the stream"""

    @property
    def is_full(self) -> bool:
        """Whether added pieces wait to be sent."""
        return bool(self._pieces)

    @property
    def is_done(self) -> bool:
        return self._stream is None

    def add(self, piece: bytes) -> None:
        if piece and self._stream is not None:
            self._pieces.append(memoryview(piece))
            self._send()

    def end(self) -> None:
        self._ends = True
        self._send()
        if self._stream is None:
            self._drained = None

    def allow(self, more_bytes: int) -> None:
        """Raises LinkError if the peer allows more than it has received."""
        self._window += more_bytes
        if self._window > WINDOW_BYTES or not more_bytes:
            raise LinkError(f"A window of {more_bytes} more bytes was not due.")
        if self._pieces:
            self._send()
            self._tell()

    def stop(self) -> None:
        """Drops what is not sent."""
        self._stream = None
        self._pieces.clear()
        self._drained = None

    def continue_sending(self) -> None:
        self._is_waiting = False
        self._send()
        self._tell()

    def _tell(self) -> None:
        if self._pieces or self._drained is None:
            return
        drained = self._drained
        if self._stream is None:
            # The owner refers to this sender: that cycle would be left to the collector.
            self._drained = None
        drained()

    def _send(self) -> None:
        stream, pieces = self._stream, self._pieces
        if stream is None or self._is_waiting:
            return
        while pieces and self._window > 0:
            if stream.is_full:
                self._is_waiting = True
                stream.wait_for_room(self)
                return
            size = min(len(pieces[0]), INLINE_BYTES, self._window)
            self._window -= size
            data = pieces[0][:size]
            if size < len(pieces[0]):
                pieces[0] = pieces[0][size:]
            else:
                pieces.popleft()
            is_last = self._ends and not pieces
            stream.send_large(DATA, self.number, body=data, flags=END if is_last else 0)
            if is_last:
                self._stream = None
                return
        if self._ends and not pieces:
            self._stream = None
            stream.send(encode_frame(DATA, self.number, flags=END))


class BodyReceiver:
    """Allows the peer to send more of a large body as it is used."""

    __slots__ = ("_allowed", "_number", "_owed", "_paused", "_stream")

    def __init__(self, stream: FrameStream, number: int) -> None:
        self._stream = stream
        self._number = number
        self._allowed = WINDOW_BYTES
        self._owed = 0
        """received, and not allowed again"""
        self._paused = False

    def received(self, size: int, is_last: bool) -> None:
        """Raises LinkError if the peer sends more than allowed, or nothing."""
        if not size and not is_last:
            raise LinkError("A DATA frame is empty, and not the last one.")
        self._allowed -= size
        if self._allowed < 0:
            raise LinkError("A body has more bytes than its window allows.")
        self._owed += size
        if not self._paused and not is_last and self._owed >= WINDOW_BYTES // 2:
            self._allow()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        if self._owed >= WINDOW_BYTES // 2:
            self._allow()

    def _allow(self) -> None:
        owed, self._owed = self._owed, 0
        self._allowed += owed
        self._stream.send(encode_window(self._number, owed))
