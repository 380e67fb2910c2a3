"""What a worker is told to do, in order: from the socket, or by way of its reading thread."""

import os
import queue
import select
import socket
from collections import deque
from typing import Protocol

import msgspec

from sagehen.modelserver.workers.frames import BrokenFrame, FrameReader
from sagehen.modelserver.workers.messages import ToWorker

__all__ = ["Inbox", "QueueInbox", "SocketInbox"]

Order = tuple[ToWorker, bytes]


class Inbox(Protocol):
    def take(self, wait: bool = True) -> Order | None:
        """The next message and its body; None if there is none yet and it is not waited for."""


class SocketInbox:
    """Reads where the messages are needed. When the server is gone, so is the process."""

    def __init__(self, source: socket.socket) -> None:
        self._reader: FrameReader[ToWorker] = FrameReader(source, msgspec.msgpack.Decoder(ToWorker))
        self._ready: deque[Order] = deque()
        self._poll = select.poll()
        self._poll.register(source, select.POLLIN)

    def take(self, wait: bool = True) -> Order | None:
        while not self._ready:
            if not wait and not self._poll.poll(0):
                return None
            try:
                self._ready += self._reader.receive()
            except (EOFError, OSError, BrokenFrame):
                os._exit(0)
        return self._ready.popleft()


class QueueInbox:
    """Filled by another thread."""

    def __init__(self) -> None:
        self._ready: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self.put = self._ready.put

    def take(self, wait: bool = True) -> Order | None:
        try:
            return self._ready.get(wait)
        except queue.Empty:
            return None
