"""Serves one model inside a worker, as messages arrive."""

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
        """Returns None if nothing has arrived and `wait` is false."""


class SocketInbox:
    """Reads in the serving thread; exits when the server is gone."""

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
    """An inbox that another thread fills."""

    def __init__(self) -> None:
        self._ready: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self.put = self._ready.put

    def take(self, wait: bool = True) -> Order | None:
        try:
            return self._ready.get(wait)
        except queue.Empty:
            return None


class Outlet:
    """Sends to the server; thread-safe."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Lock()

    def send(self, message: FromWorker, body: bytes = b"") -> None:
        """Raises UnicodeEncodeError for lone surrogates, before sending."""
        pieces = frame(message, body)
        with self._lock:
            for piece in pieces:
                self._end.sendall(piece)


class Serving:
    """Serves one model from its Load on."""

    def __init__(self, adapter: Adapter, inbox: Inbox, outlet: Outlet) -> None:
        self._adapter = adapter
        self._inbox = inbox
        self._outlet = outlet
        self._later: deque[Order] = deque()
        self._ahead = 0

    def run(self, load: Load) -> None:
        """Returns when the model is unloaded or did not load."""
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
        while True:
            order = self._later.popleft() if self._later else self._inbox.take()
            assert order is not None
            message, body = order
            if type(message) is CallMessage:
                self._answer(model, message, body)
            elif not isinstance(message, Taken | Abandon):  # stream already over
                return

    def _answer(self, model: CallModel, call: CallMessage, body: bytes) -> None:
        start = time.perf_counter()
        try:
            answer = model.call(ModelRequest("POST", "/invocations", call.headers, body, _unheard))
        except BaseException as problem:  # perhaps sys.exit()
            answer = failure(problem)
        seconds = time.perf_counter() - start
        try:
            self._send(call.model, answer, seconds)
        except (ValueError, TypeError) as problem:
            # Invalid status or header from user code.
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
        self._ahead = ahead
        whole = False
        try:
            with closing(rest):
                whole = self._is_wanted(call) and all(self._put(call, piece) for piece in rest)
        except BaseException:  # perhaps sys.exit()
            log.exception("The model's code raised in the middle of its answer, which is cut off.")
        self._outlet.send(Over(call.model, whole))

    def _put(self, call: CallMessage, piece: bytes) -> bool:
        self._outlet.send(Piece(call.model), piece)
        self._ahead += len(piece)
        return self._is_wanted(call)

    def _is_wanted(self, call: CallMessage) -> bool:
        """Waits for room to send; returns whether to send more."""
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
    """Replaces lone surrogates, which UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()


def _unheard(request: ModelRequest) -> None:
    """Answers go back as messages."""
