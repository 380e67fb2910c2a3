"""The queue before one model whose own code answers a request a call, always in a thread."""

import asyncio
from collections import deque
from concurrent.futures import Executor
from functools import partial

from sagehen.clock import SYSTEM, Clock
from sagehen.modelserver.call_times import CallTimes
from sagehen.modelserver.contract import Answer, CallModel, Request
from sagehen.modelserver.replies import abandoned, failure, queue_full, timed_out
from sagehen.modelserver.streaming import Stream

__all__ = ["Caller"]


class Caller:
    """At most `workers` requests are worked on at once; at most `max_waiting` wait.

    A call that takes longer than `timeout_seconds` is answered with an error. It cannot be ended,
    so it keeps its worker until it comes back; when none is left the model is stuck. An answer in
    pieces has that time for its first piece, and again to stop when nobody wants the others.
    """

    def __init__(
        self,
        model: CallModel,
        executor: Executor,
        workers: int,
        max_waiting: int,
        timeout_seconds: float = 60.0,
        clock: Clock = SYSTEM,
    ) -> None:
        self._model = model
        self._clock = clock
        self._times = CallTimes()
        self._executor = executor
        self._workers = workers
        self._max_waiting = max_waiting
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Request] = deque()
        self._timeout_seconds = timeout_seconds
        self._working = 0
        self._timers: dict[Request, asyncio.TimerHandle] = {}
        self._overdue: set[Request] = set()
        self._idle: asyncio.Future[None] | None = None

    def submit(self, request: Request) -> None:
        if self._working < self._workers:
            self._start(request)
        elif len(self._waiting) < self._max_waiting:
            self._waiting.append(request)
        else:
            request.respond(queue_full())

    @property
    def slots(self) -> int:
        return self._workers * self._times.ready

    @property
    def stuck(self) -> bool:
        return len(self._overdue) >= self._workers

    async def drained(self) -> None:
        if self._working:
            self._idle = self._idle or self._loop.create_future()
            await asyncio.shield(self._idle)

    def _start(self, request: Request) -> None:
        self._working += 1
        self._await(request)
        work = self._loop.run_in_executor(self._executor, self._measured, request)
        work.add_done_callback(lambda done: self._finish(request, done.result()))

    def _await(self, request: Request) -> None:
        timer = self._loop.call_later(self._timeout_seconds, self._give_up, request)
        self._timers[request] = timer

    def _give_up(self, request: Request) -> None:
        self._overdue.add(request)
        request.respond(timed_out(self._timeout_seconds))

    def _measured(self, request: Request) -> Answer:
        start = self._clock.monotonic()
        answer = self._call(request)
        self._times.record(self._clock.monotonic() - start)
        return answer

    def _call(self, request: Request) -> Answer:
        try:
            answer = self._model.call(request)
        except BaseException as problem:  # the user's code may even call sys.exit()
            return failure(problem)
        if answer.stream is not None:
            self._loop.call_soon_threadsafe(self._begin, request, answer, answer.stream)
            answer.stream.produce(self._loop)
        return answer

    def _begin(self, request: Request, answer: Answer, stream: Stream) -> None:
        """The first piece is here: how long the others take is for the caller to bear."""
        self._timers.pop(request).cancel()
        if request.answer is not None:
            stream.abandon()
            return
        stream.on_abandon = partial(self._await, request)
        request.respond(answer)

    def _finish(self, request: Request, answer: Answer) -> None:
        self._working -= 1
        if (timer := self._timers.pop(request, None)) is not None:
            timer.cancel()
        self._overdue.discard(request)
        request.respond(answer)
        while self._waiting:
            following = self._waiting.popleft()
            if not following.abandoned:
                self._start(following)
                return
            following.respond(abandoned())
        if self._working == 0 and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None
