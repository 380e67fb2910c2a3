"""One model's calls in one worker, with timeouts and sticky sessions.

Session state is in one process, which gets all its requests.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Generic, Protocol, TypeVar

from sagehen.containers.modelserver.contract import ModelAnswer, ModelRequest
from sagehen.containers.modelserver.serving.responses import invalid_status, timed_out, worker_died
from sagehen.containers.modelserver.serving.streaming import AnswerStream
from sagehen.containers.modelserver.workers.messages import (
    Abandon,
    Answered,
    CallMessage,
    Taken,
    ToWorker,
)

__all__ = ["SESSION", "SessionAffinity", "WorkerQueue"]

T = TypeVar("T")

SESSION = b"x-amzn-sagemaker-session-id"
MAX_SESSIONS = 10_000
"""The least recently used are forgotten."""

_NEW = b"NEW_SESSION"
_OPENED, _CLOSED = SESSION.decode(), "x-amzn-sagemaker-closed-session-id"


class SessionAffinity(Generic[T]):
    def __init__(self) -> None:
        self._holders: OrderedDict[str, T] = OrderedDict()

    def holder(self, headers: Mapping[bytes, bytes]) -> T | None:
        """Returns the session's worker, if any."""
        if (session := headers.get(SESSION)) is None or session == _NEW:
            return None
        name = session.decode("latin-1")
        holder = self._holders.get(name)
        if holder is not None:
            self._holders.move_to_end(name)
        return holder

    def learn(self, holder: T, headers: Iterable[tuple[str, str]]) -> None:
        """Reads from an answer's headers that a session began or ended."""
        for header, value in headers:
            name = value.partition(";")[0].strip()
            if header.lower() == _OPENED:
                self._holders[name] = holder
                if len(self._holders) > MAX_SESSIONS:
                    self._holders.popitem(last=False)
            elif header.lower() == _CLOSED:
                self._holders.pop(name, None)

    def forget(self, holder: T) -> None:
        for name in [name for name, other in self._holders.items() if other is holder]:
            del self._holders[name]


class _Worker(Protocol):
    def send(self, message: ToWorker, body: bytes = b"") -> None: ...

    def end(self, reason: str) -> None: ...


class _Dispatcher(Protocol):
    def answered(self, seconds: float) -> None: ...

    def learn_session(self, queue: "WorkerQueue", headers: tuple[tuple[str, str], ...]) -> None: ...


class WorkerQueue:
    """One worker's calls for one model; only the first can be in progress.

    A call over `timeout_seconds` is answered with an error, and its worker ended. A streamed answer
    has that time for its first piece, and again to stop when abandoned.
    """

    def __init__(
        self,
        model: int,
        worker: _Worker,
        timeout_seconds: float,
        dispatcher: _Dispatcher,
    ) -> None:
        self.calls: deque[ModelRequest] = deque()
        self._model = model
        self._worker = worker
        self._timeout_seconds = timeout_seconds
        self._dispatcher = dispatcher
        self._loop = asyncio.get_running_loop()
        self._first = 0  # number of calls[0]
        self._since: float | None = None  # start of the timeout
        self._timer: asyncio.TimerHandle | None = None
        self._stream: AnswerStream | None = None
        self._seconds = 0.0
        self._ended_idle = False

    def send(self, request: ModelRequest) -> None:
        if not self.calls:
            self._watch()
        number = self._first + len(self.calls)
        # The worker may begin a request in its queue at any time.
        request.mark_begun()
        self.calls.append(request)
        self._worker.send(CallMessage(self._model, number, request.headers), request.body)

    def answered(self, message: Answered, body: bytes) -> None:
        request = self.calls[0]
        if SESSION in request.headers:
            self._dispatcher.learn_session(self, message.headers)
        # Clients take what follows an interim answer for the answer, perhaps to their next request.
        is_final = 200 <= message.status < 600
        status = message.status if is_final else 500
        answer = ModelAnswer(status, body, message.content_type, message.headers, message.close)
        if not message.more:
            answer = answer if is_final else invalid_status(message.status)
            self._over(request, answer, message.seconds)
            return
        # The client sets the pace of further pieces.
        self._since = None
        self._seconds = message.seconds
        number = self._first
        self._stream = AnswerStream(
            body,
            lambda count: self._worker.send(Taken(self._model, number, count)),
            partial(self._abandon, number),
        )
        request.respond(answer._replace(body=b"", stream=self._stream))

    def add_piece(self, piece: bytes) -> None:
        if self._stream is not None:
            self._stream.add(piece)

    def end_stream(self, whole: bool) -> None:
        if self._stream is not None:
            self._stream.end(whole)
            self._stream = None
            self._over(self.calls[0], None, self._seconds)

    def stop(self) -> None:
        """The worker died: later requests cannot have begun."""
        self._ended_idle = not self.calls

    def lost(self, ending: str) -> list[ModelRequest]:
        """Returns requests that have not begun."""
        self.close()
        if self._stream is not None:
            self._stream.end(whole=False)
        if self.calls and not self._ended_idle:
            self.calls.popleft().respond(worker_died(ending))
        unstarted = list(self.calls)
        self.calls.clear()
        return unstarted

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _over(self, request: ModelRequest, answer: ModelAnswer | None, seconds: float) -> None:
        self.calls.popleft()
        self._first += 1
        self._since = None
        if self.calls:
            self._watch()
        if answer is not None:
            request.respond(answer)
        self._dispatcher.answered(seconds)

    def _abandon(self, number: int) -> None:
        self._worker.send(Abandon(self._model, number))
        self._watch()

    def _watch(self) -> None:
        self._since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_seconds, self._check)

    def _check(self) -> None:
        # One timer for many calls, as most end sooner.
        self._timer = None
        if self._since is None:
            return
        remaining = self._since + self._timeout_seconds - self._loop.time()
        if remaining > 0:
            self._timer = self._loop.call_later(remaining, self._check)
            return
        self._since = None
        self.calls[0].respond(timed_out(self._timeout_seconds))
        self._worker.end(f"was ended: a call did not come back within {self._timeout_seconds:g} s")
