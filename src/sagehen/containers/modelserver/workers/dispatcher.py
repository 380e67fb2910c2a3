"""Dispatches one model's requests to workers."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from sagehen.containers.modelserver.contract import ModelAnswer, ModelRequest
from sagehen.containers.modelserver.serving.batch_limits import CallTimes
from sagehen.containers.modelserver.serving.responses import abandoned, queue_full
from sagehen.containers.modelserver.workers.worker_queue import Affinity, WorkerQueue

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
        self._ready = 1
        self._lanes: list[WorkerQueue] = []
        self._waiting: deque[ModelRequest] = deque()
        self._sessions: Affinity[WorkerQueue] = Affinity()
        self._closed: ModelAnswer | None = None
        self._idle: asyncio.Future[None] | None = None

    def submit(self, request: ModelRequest) -> None:
        if self._closed is not None:
            request.respond(self._closed)
        elif (lane := self._sessions.holder(request.headers)) is not None:
            self._send_to(lane, request)
        elif (lane := self._free()) is not None:
            lane.send(request)
        elif len(self._waiting) < self._max_waiting:
            self._waiting.append(request)
        else:
            request.respond(queue_full())

    def add(self, lane: WorkerQueue) -> None:
        self._lanes.append(lane)
        self._go_on()

    def remove(self, lane: WorkerQueue, unbegun: Iterable[ModelRequest] = ()) -> None:
        """`unbegun` requests go to the front."""
        self._lanes.remove(lane)
        self._sessions.forget(lane)
        self._waiting.extendleft(reversed(list(unbegun)))
        self._go_on()

    def close(self, answer: ModelAnswer) -> None:
        """The model is gone: gives `answer` to waiting and future requests."""
        self._closed = answer
        while self._waiting:
            self._waiting.popleft().respond(answer)
        self._go_on()

    def answered(self, seconds: float) -> None:
        self._times.record(seconds)
        self._ready = self._times.ready
        self._go_on()

    def learn_session(self, lane: WorkerQueue, headers: tuple[tuple[str, str], ...]) -> None:
        self._sessions.learn(lane, headers)

    @property
    def lanes(self) -> int:
        return len(self._lanes)

    @property
    def slots(self) -> int:
        return self._workers * self._ready

    @property
    def stuck(self) -> bool:
        return self._is_stuck()

    async def drained(self) -> None:
        if self._busy:
            self._idle = self._idle or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    @property
    def _busy(self) -> bool:
        return bool(self._waiting) or any(lane.calls for lane in self._lanes)

    def _send_to(self, lane: WorkerQueue, request: ModelRequest) -> None:
        """Queues here, as only this worker holds the session."""
        if len(lane.calls) < self._ready + self._max_waiting:
            lane.send(request)
        else:
            request.respond(queue_full())

    def _free(self) -> WorkerQueue | None:
        if not self._lanes:
            return None
        lane = min(self._lanes, key=_length) if len(self._lanes) > 1 else self._lanes[0]
        return lane if len(lane.calls) < self._ready else None

    def _go_on(self) -> None:
        waiting = self._waiting
        while waiting and (lane := self._free()) is not None:
            request = waiting.popleft()
            if request.abandoned:
                request.respond(abandoned())
            else:
                lane.send(request)
        if self._idle is not None and not self._busy:
            self._idle.set_result(None)
            self._idle = None


def _length(lane: WorkerQueue) -> int:
    return len(lane.calls)
