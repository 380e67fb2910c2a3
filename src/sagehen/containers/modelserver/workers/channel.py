"""The server's non-blocking end of a worker's socket."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable

import msgspec

from sagehen.containers.modelserver.workers.messages import (
    BrokenFrame,
    FromWorker,
    MessageReader,
    ToWorker,
    frame,
)

__all__ = ["WorkerChannel"]

_MAX_PIECES = 512
"""Pieces per system call; Linux allows 1024."""


class WorkerChannel:
    """Sends messages, grouped per turn of the event loop, and delivers replies."""

    def __init__(self, end: socket.socket, on_message: Callable[[FromWorker, bytes], None]) -> None:
        end.setblocking(False)
        self.broken: str | None = None
        """Why input cannot be parsed."""
        self._end = end
        self._on_message = on_message
        self._reader: MessageReader[FromWorker] = MessageReader(
            end, msgspec.msgpack.Decoder(FromWorker)
        )
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[bytes | memoryview] = deque()
        self._flushing = False  # flush scheduled
        self._full = False  # socket buffer full
        self._open = True
        self._loop.add_reader(end, self._receive)

    def send(self, message: ToWorker, body: bytes = b"") -> None:
        """Does nothing when the other end is closed."""
        if not self._open:
            return
        self._unsent += frame(message, body)
        if not self._flushing:
            # Next turn: other connections deliver their requests first.
            self._flushing = True
            self._loop.call_soon(self._flush)

    def drain(self) -> None:
        """Delivers what has arrived, then closes."""
        while self._open and self._receive():
            pass
        self.close()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._end)
            self._loop.remove_writer(self._end)
            self._unsent.clear()
            self._end.close()

    def _receive(self) -> bool:
        try:
            received = self._reader.receive()
        except (BlockingIOError, InterruptedError):
            return False
        except BrokenFrame as error:
            self.broken = str(error)
            self.close()
            return False
        except (EOFError, OSError):
            self.close()
            return False
        for message, body in received:
            self._on_message(message, body)
        return True

    def _flush(self) -> None:
        unsent = self._unsent
        full = False
        try:
            while unsent and not full:
                pieces = [unsent.popleft() for _ in range(min(len(unsent), _MAX_PIECES))]
                if rest := self._send(pieces):
                    unsent.extendleft(reversed(rest))
                    full = True
        except OSError:
            unsent.clear()  # the process's exit follows
        self._flushing = full
        self._wait_until_writable(full)

    def _wait_until_writable(self, full: bool) -> None:
        if full != self._full and self._open:
            self._full = full
            if full:
                self._loop.add_writer(self._end, self._flush)
            else:
                self._loop.remove_writer(self._end)

    def _send(self, pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
        try:
            sent = self._end.sendmsg(pieces)
        except (BlockingIOError, InterruptedError):
            return pieces
        for at, piece in enumerate(pieces):
            if sent < len(piece):
                return [memoryview(piece)[sent:], *pieces[at + 1 :]]
            sent -= len(piece)
        return []
