"""One model inside a worker: loaded, called and unloaded as the messages say, in their order.

What a worker is told to do, in order: from the socket, or by way of its reading thread.
"""

import logging
import os
import queue
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Protocol

import msgspec

from sagehen.base.errors import SagehenError
from sagehen.containers.modelserver.contract import (
    Adapter,
    BatchModel,
    CallModel,
    ModelAnswer,
    ModelRequest,
)
from sagehen.containers.modelserver.serving.malloc_trim import give_memory_back
from sagehen.containers.modelserver.serving.responses import failure
from sagehen.containers.modelserver.serving.streaming import AHEAD_BYTES
from sagehen.containers.modelserver.tracebacks import user_traceback
from sagehen.containers.modelserver.workers.messages import (
    Abandon,
    Answered,
    BrokenFrame,
    CallMessage,
    FailedMessage,
    FrameReader,
    FromWorker,
    Load,
    LoadedMessage,
    Over,
    Piece,
    Taken,
    ToWorker,
    Unloaded,
    frame,
)

__all__ = ["Inbox", "Outlet", "QueueInbox", "Serving", "SocketInbox"]

log = logging.getLogger(__name__)

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


class Outlet:
    """The worker's way back; several threads may use it."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Lock()

    def send(self, message: FromWorker, body: bytes = b"") -> None:
        """Raises UnicodeEncodeError, having sent nothing, for text that is none."""
        pieces = frame(message, body)
        with self._lock:
            for piece in pieces:
                self._end.sendall(piece)


class Serving:
    """One model, from the order to load it on."""

    def __init__(self, adapter: Adapter, inbox: Inbox, outlet: Outlet) -> None:
        self._adapter = adapter
        self._inbox = inbox
        self._outlet = outlet
        self._later: deque[Order] = deque()
        self._ahead = 0

    def run(self, load: Load) -> None:
        """Return when it is unloaded, or did not load."""
        try:
            model = self._adapter.load(Path(load.folder))
            assert not isinstance(model, BatchModel)
        except BaseException as problem:
            self._outlet.send(_failed(load.model, problem))
            return
        self._outlet.send(LoadedMessage(load.model))
        self._serve(model)
        model.close()
        del model
        give_memory_back()
        self._outlet.send(Unloaded(load.model))

    def _serve(self, model: CallModel) -> None:
        """Until it is to be unloaded."""
        while True:
            order = self._later.popleft() if self._later else self._inbox.take()
            assert order is not None
            message, body = order
            if type(message) is CallMessage:
                self._answer(model, message, body)
            elif not isinstance(message, Taken | Abandon):  # of a stream that is over
                return

    def _answer(self, model: CallModel, call: CallMessage, body: bytes) -> None:
        start = time.perf_counter()
        try:
            answer = model.call(ModelRequest("POST", "/invocations", call.headers, body, _unheard))
        except BaseException as problem:  # the user's code may even call sys.exit()
            answer = failure(problem)
        seconds = time.perf_counter() - start
        try:
            self._send(call.model, answer, seconds)
        except (ValueError, TypeError) as problem:
            # The user's code set a status or a header that is none.
            answer = failure(problem)
            self._send(call.model, answer, seconds)
        if answer.rest is not None:
            self._make_pieces(call, answer.rest, len(answer.body))

    def _send(self, model: int, answer: ModelAnswer, seconds: float) -> None:
        headers = tuple((str(name), str(value)) for name, value in answer.headers)
        status, more = int(answer.status), answer.rest is not None
        self._outlet.send(
            Answered(model, status, answer.content_type, headers, answer.close, seconds, more),
            answer.body,
        )

    def _make_pieces(self, call: CallMessage, rest: Generator[bytes], ahead: int) -> None:
        """Make pieces until the last, or until nobody wants them any more."""
        self._ahead = ahead
        whole = False
        try:
            with closing(rest):
                whole = self._is_wanted(call) and all(self._put(call, piece) for piece in rest)
        except BaseException:  # the user's code may even call sys.exit()
            log.exception("The model's code raised in the middle of its answer, which is cut off.")
        self._outlet.send(Over(call.model, whole))

    def _put(self, call: CallMessage, piece: bytes) -> bool:
        """Whether more is wanted."""
        self._outlet.send(Piece(call.model), piece)
        self._ahead += len(piece)
        return self._is_wanted(call)

    def _is_wanted(self, call: CallMessage) -> bool:
        """Whether more is, when there is room for it."""
        while (order := self._inbox.take(wait=self._ahead >= AHEAD_BYTES)) is not None:
            message = order[0]
            if isinstance(message, Taken | Abandon):
                if message.number != call.number:
                    continue
                if isinstance(message, Abandon):
                    return False
                self._ahead -= message.count
            else:
                self._later.append(order)
        return True


def _failed(model: int, problem: BaseException) -> FailedMessage:
    if isinstance(problem, SystemExit):
        end = RuntimeError(f"The model's code called sys.exit({problem.code!r}).")
        end.__cause__ = problem
        problem = end
    kind = "raised"
    if isinstance(problem, MemoryError):
        kind = "memory"
    elif isinstance(problem, SagehenError):
        kind = "said"
    return FailedMessage(model, kind, _text(str(problem)), _text(user_traceback(problem)))


def _text(text: str) -> str:
    """Without what UTF-8 cannot say."""
    return text.encode(errors="replace").decode()


def _unheard(request: ModelRequest) -> None:
    """The answer goes back as a message."""
