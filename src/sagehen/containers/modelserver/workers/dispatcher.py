"""Dispatches one model's requests to workers."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from sagehen.containers.modelserver.contract import ModelAnswer, ModelRequest
from sagehen.containers.modelserver.serving.batch_limits import CallTimes
from sagehen.containers.modelserver.serving.responses import abandoned, queue_full
from sagehen.containers.modelserver.workers.worker_queue import SessionAffinity, WorkerQueue

__all__ = ["WorkerDispatcher"]


class WorkerDispatcher:
    """Gives each worker as many requests as suit its speed; at most `max_waiting` wait here."""

    def __init__(
        self, workers: int, max_waiting: int, is_stuck: Callable[[], bool] = lambda: False
    ) -> None:
        self._workers = workers
        self._max_waiting = max_waiting
        self._is_stuck = is_stuck
        self._times = CallTimes()
        self._queue_limit = 1
        self._queues: list[WorkerQueue] = []
        self._waiting: deque[ModelRequest] = deque()
        self._sessions: SessionAffinity[WorkerQueue] = SessionAffinity()
        self._closed: ModelAnswer | None = None
        self._idle: asyncio.Future[None] | None = None

    def submit(self, request: ModelRequest) -> None:
        if self._closed is not None:
            request.respond(self._closed)
        elif (queue := self._sessions.holder(request.headers)) is not None:
            self._send_in_session(queue, request)
        elif (queue := self._free_queue()) is not None:
            queue.send(request)
        elif len(self._waiting) < self._max_waiting:
            self._waiting.append(request)
        else:
            request.respond(queue_full())

    def add(self, queue: WorkerQueue) -> None:
        self._queues.append(queue)
        self._send_waiting()

    def remove(self, queue: WorkerQueue, unstarted: Iterable[ModelRequest] = ()) -> None:
        """`unstarted` requests go to the front."""
        self._queues.remove(queue)
        self._sessions.forget(queue)
        self._waiting.extendleft(reversed(list(unstarted)))
        self._send_waiting()

    def close(self, answer: ModelAnswer) -> None:
        """The model is gone: gives `answer` to waiting and future requests."""
        self._closed = answer
        while self._waiting:
            self._waiting.popleft().respond(answer)
        self._send_waiting()

    def answered(self, seconds: float) -> None:
        self._times.record(seconds)
        self._queue_limit = self._times.ready
        self._send_waiting()

    def learn_session(self, queue: WorkerQueue, headers: tuple[tuple[str, str], ...]) -> None:
        self._sessions.learn(queue, headers)

    @property
    def worker_count(self) -> int:
        return len(self._queues)

    @property
    def slots(self) -> int:
        return self._workers * self._queue_limit

    @property
    def stuck(self) -> bool:
        return self._is_stuck()

    async def drained(self) -> None:
        if self._busy:
            self._idle = self._idle or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    @property
    def _busy(self) -> bool:
        return bool(self._waiting) or any(queue.calls for queue in self._queues)

    def _send_in_session(self, queue: WorkerQueue, request: ModelRequest) -> None:
        """Queues here, as only this worker holds the session."""
        if len(queue.calls) < self._queue_limit + self._max_waiting:
            queue.send(request)
        else:
            request.respond(queue_full())

    def _free_queue(self) -> WorkerQueue | None:
        if not self._queues:
            return None
        queue = min(self._queues, key=_length) if len(self._queues) > 1 else self._queues[0]
        return queue if len(queue.calls) < self._queue_limit else None

    def _send_waiting(self) -> None:
        waiting = self._waiting
        while waiting and (queue := self._free_queue()) is not None:
            request = waiting.popleft()
            if request.abandoned:
                request.respond(abandoned())
            else:
                queue.send(request)
        if self._idle is not None and not self._busy:
            self._idle.set_result(None)
            self._idle = None


def _length(queue: WorkerQueue) -> int:
    return len(queue.calls)
