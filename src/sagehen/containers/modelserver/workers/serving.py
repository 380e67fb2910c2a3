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

from sagehen.containers.modelserver.contract import (
    Adapter,
    BatchModel,
    CallModel,
    ModelAnswer,
    ModelRequest,
)
from sagehen.containers.modelserver.load_failures import describe_load_failure
from sagehen.containers.modelserver.serving.malloc_trim import give_memory_back
from sagehen.containers.modelserver.serving.responses import failure
from sagehen.containers.modelserver.serving.streaming import AHEAD_BYTES
from sagehen.containers.modelserver.workers.messages import (
    Abandon,
    Answered,
    BrokenFrame,
    CallMessage,
    FailedMessage,
    FromWorker,
    Load,
    LoadedMessage,
    MessageReader,
    Over,
    Piece,
    Taken,
    ToWorker,
    Unloaded,
    frame,
)

__all__ = ["Inbox", "Outlet", "QueueInbox", "Serving", "SocketInbox"]

log = logging.getLogger(__name__)

Received = tuple[ToWorker, bytes]


class Inbox(Protocol):
    """Messages from the server."""

    def take(self) -> Received:
        """Waits for a message."""

    def poll(self) -> Received | None:
        """Returns None if no message has arrived."""


class SocketInbox:
    """Reads in the serving thread; exits when the server is gone."""

    def __init__(self, source: socket.socket) -> None:
        self._reader: MessageReader[ToWorker] = MessageReader(
            source, msgspec.msgpack.Decoder(ToWorker)
        )
        self._ready: deque[Received] = deque()
        self._poll = select.poll()
        self._poll.register(source, select.POLLIN)

    def take(self) -> Received:
        while not self._ready:
            self._receive()
        return self._ready.popleft()

    def poll(self) -> Received | None:
        while not self._ready:
            if not self._poll.poll(0):
                return None
            self._receive()
        return self._ready.popleft()

    def _receive(self) -> None:
        try:
            self._ready += self._reader.receive()
        except (EOFError, OSError, BrokenFrame):
            os._exit(0)


class QueueInbox:
    """An inbox that another thread fills."""

    def __init__(self) -> None:
        self._ready: queue.SimpleQueue[Received] = queue.SimpleQueue()
        self.put = self._ready.put
        self.take = self._ready.get

    def poll(self) -> Received | None:
        try:
            return self._ready.get_nowait()
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
        self._deferred: deque[Received] = deque()
        self._unacknowledged = 0

    def run(self, load: Load) -> None:
        """Returns when the model is unloaded or did not load."""
        try:
            model = self._adapter.load(Path(load.folder))
            if isinstance(model, BatchModel):
                raise TypeError("The adapter's needs_worker is True for a model that batches.")
        except BaseException as error:
            self._outlet.send(_failed(load.model, error))
            return
        self._outlet.send(LoadedMessage(load.model))
        self._serve(model)
        model.close()
        del model
        give_memory_back()
        self._outlet.send(Unloaded(load.model))

    def _serve(self, model: CallModel) -> None:
        while True:
            received = self._deferred.popleft() if self._deferred else self._inbox.take()
            message, body = received
            if type(message) is CallMessage:
                self._answer(model, message, body)
            elif not isinstance(message, Taken | Abandon):  # stream already over
                return

    def _answer(self, model: CallModel, call: CallMessage, body: bytes) -> None:
        start = time.perf_counter()
        try:
            answer = model.call(
                ModelRequest("POST", "/invocations", call.headers, body, _ignore_answer)
            )
        except BaseException as error:  # perhaps sys.exit()
            answer = failure(error)
        seconds = time.perf_counter() - start
        try:
            self._send(call.model, answer, seconds)
        except (ValueError, TypeError) as error:
            # Invalid status or header from user code.
            answer = failure(error)
            self._send(call.model, answer, seconds)
        if answer.rest is not None:
            self._send_pieces(call, answer.rest, len(answer.body))

    def _send(self, model: int, answer: ModelAnswer, seconds: float) -> None:
        headers = tuple((str(name), str(value)) for name, value in answer.headers)
        status, more = int(answer.status), answer.rest is not None
        self._outlet.send(
            Answered(model, status, answer.content_type, headers, answer.close, seconds, more),
            answer.body,
        )

    def _send_pieces(self, call: CallMessage, rest: Generator[bytes], ahead: int) -> None:
        self._unacknowledged = ahead
        complete = False
        try:
            with closing(rest):
                complete = self._may_continue(call) and all(
                    self._send_piece(call, piece) for piece in rest
                )
        except BaseException:  # perhaps sys.exit()
            log.exception("The model's code raised in the middle of its answer, which is cut off.")
        self._outlet.send(Over(call.model, complete))

    def _send_piece(self, call: CallMessage, piece: bytes) -> bool:
        self._outlet.send(Piece(call.model), piece)
        self._unacknowledged += len(piece)
        return self._may_continue(call)

    def _may_continue(self, call: CallMessage) -> bool:
        """Waits until the client has taken enough; returns whether to send more."""
        while (received := self._next_message()) is not None:
            message = received[0]
            if isinstance(message, Taken | Abandon):
                if message.number != call.number:
                    continue
                if isinstance(message, Abandon):
                    return False
                self._unacknowledged -= message.count
            else:
                self._deferred.append(received)
        return True

    def _next_message(self) -> Received | None:
        if self._unacknowledged >= AHEAD_BYTES:
            return self._inbox.take()
        return self._inbox.poll()


def _failed(model: int, error: BaseException) -> FailedMessage:
    if isinstance(error, SystemExit):
        end = RuntimeError(f"The model's code called sys.exit({error.code!r}).")
        error = end.with_traceback(error.__traceback__)
    failure = describe_load_failure(error)
    return FailedMessage(
        model,
        _encodable(str(error)),
        isinstance(error, MemoryError),
        _encodable(failure.summary),
        _encodable(failure.lines),
        failure.permanent,
    )


def _encodable(text: str) -> str:
    """Replaces lone surrogates, which UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()


def _ignore_answer(request: ModelRequest) -> None:
    """Answers go back as messages."""
