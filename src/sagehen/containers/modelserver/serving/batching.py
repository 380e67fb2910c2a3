"""Natural batching: requests ready in one turn of the event loop form a batch.

Without a delay, a lone request is predicted at once; batches form under load.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

from sagehen.base.clock import SYSTEM, Clock
from sagehen.containers.modelserver.contract import BatchModel, ModelAnswer, ModelRequest
from sagehen.containers.modelserver.serving.batch_limits import NATURAL, BatchLimits, CallTimes
from sagehen.containers.modelserver.serving.responses import abandoned, failure, queue_full

__all__ = ["BATCH_SLOTS", "Batcher"]

BATCH_SLOTS = 256
"""Enough for the next batch to form meanwhile."""
QUICK_SECONDS = 0.002
"""Longer work goes to a thread, to keep the loop free."""
SMALL_BYTES = 16 * 1024
"""While a batch gathers, the loop decodes bodies up to this size, larger ones if that is quick."""

_FORGETTING = 0.9


class _Waiting:
    __slots__ = ("request", "rows", "since")

    def __init__(self, request: ModelRequest, since: float) -> None:
        self.request = request
        self.since = since
        self.rows: Any = None
        """After decoding: rows, or an error's answer."""

    @property
    def count(self) -> int:
        if self.rows is None:
            return 1
        return 0 if isinstance(self.rows, ModelAnswer) else int(self.rows.count)


class Batcher:
    """One model's queue; predicts one batch at a time."""

    def __init__(
        self,
        model: BatchModel,
        executor: Executor,
        max_waiting: int,
        limits: BatchLimits = NATURAL,
        clock: Clock = SYSTEM,
    ) -> None:
        self._model = model
        self._decode_request = getattr(model, "decode_request", None)
        self._executor = executor
        self._max_waiting = max_waiting
        self._limits = limits
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._busy = False
        self._gathered = 0
        self._timer: asyncio.TimerHandle | None = None
        self._pace = _Pace()
        self._decoding = _Pace()
        self._times = CallTimes()
        self._idle: asyncio.Future[None] | None = None

    def submit(self, request: ModelRequest) -> None:
        if len(self._waiting) >= self._max_waiting:
            request.respond(queue_full())
            return
        delay = self._limits.delay_seconds
        waiting = _Waiting(request, self._clock.monotonic() if delay else 0.0)
        self._waiting.append(waiting)
        if not self._busy:
            # Next turn: other connections deliver their requests first.
            self._busy = True
            self._loop.call_soon(self._turn)
        elif self._timer is not None:
            self._gathered += self._share(waiting)
            if self._gathered >= self._limits.max_rows:
                self._timer.cancel()
                self._work()

    async def drained(self) -> None:
        if self._busy:
            self._idle = self._idle or self._loop.create_future()
            await asyncio.shield(self._idle)

    @property
    def slots(self) -> int:
        batches = max(2, self._times.ready)
        return min(BATCH_SLOTS, self._max_waiting, batches * self._limits.max_rows)

    @property
    def stuck(self) -> bool:
        return False  # a framework's prediction ends

    def _turn(self) -> None:
        left = self._time_left()
        if left > 0:
            self._timer = self._loop.call_later(left, self._work)
        else:
            self._work()

    def _time_left(self) -> float:
        """Returns seconds; 0 or less when the batch is full."""
        if not self._limits.delay_seconds:
            return 0.0
        self._gathered = 0
        for waiting in self._waiting:
            self._gathered += self._share(waiting)
            if self._gathered >= self._limits.max_rows:
                return 0.0
        due = self._waiting[0].since + self._limits.delay_seconds
        return due - self._clock.monotonic()

    def _share(self, waiting: _Waiting) -> int:
        """Returns the request's rows. A body that is slow to decode fills the batch, to reach the
        thread at once.
        """
        size = len(waiting.request.body)
        if size > SMALL_BYTES and self._decoding.expected(size) > QUICK_SECONDS:
            return self._limits.max_rows
        self._decode(waiting)
        return waiting.count

    def _work(self) -> None:
        self._timer = None
        batch, size = self._take()
        if self._pace.expected(size) <= QUICK_SECONDS:
            self._finish(batch, self._measured(batch))
        else:
            work = self._loop.run_in_executor(self._executor, self._measured, batch)
            work.add_done_callback(lambda done: self._finish(batch, done.result()))

    def _take(self) -> tuple[list[_Waiting], int]:
        """Returns a batch and its size in bytes, which predicts its time."""
        batch: list[_Waiting] = []
        size = rows = 0
        queue, limits = self._waiting, self._limits
        while queue and size < limits.max_bytes and rows < limits.max_rows:
            waiting = queue.popleft()
            request = waiting.request
            if request.abandoned:
                request.respond(abandoned())
                continue
            batch.append(waiting)
            size += len(request.body)
            rows += waiting.count
        return batch, size

    def _finish(self, batch: list[_Waiting], answers: list[ModelAnswer | None]) -> None:
        later = []
        for waiting, answer in zip(batch, answers, strict=True):
            if answer is None:
                later.append(waiting)
            else:
                waiting.request.respond(answer)
        self._waiting.extendleft(reversed(later))
        if self._waiting:
            self._loop.call_soon(self._turn)
            return
        self._busy = False
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _measured(self, batch: list[_Waiting]) -> list[ModelAnswer | None]:
        start = self._clock.monotonic()
        try:
            answers = self._answers(batch)
        except Exception as problem:  # a faulty adapter: answer all the same
            answers = [failure(problem) for _ in batch]
        seconds = self._clock.monotonic() - start
        pairs = zip(batch, answers, strict=True)
        self._pace.record(sum(len(one.request.body) for one, said in pairs if said), seconds)
        self._times.record(seconds)
        return answers

    def _answers(self, batch: list[_Waiting]) -> list[ModelAnswer | None]:
        """Returns None for requests that must wait for the next call."""
        for waiting in batch:
            self._decode(waiting)
        answers = [one.rows if isinstance(one.rows, ModelAnswer) else None for one in batch]
        group = self._first_group(batch, answers)
        if group:
            predictions = self._predict([batch[at].rows for at in group])
            for at, prediction in zip(group, predictions, strict=True):
                answers[at] = self._encode(batch[at].request, prediction)
        return answers

    def _decode(self, waiting: _Waiting) -> None:
        if waiting.rows is not None:
            return
        request = waiting.request
        large = len(request.body) > SMALL_BYTES
        start = self._clock.monotonic() if large else 0.0
        try:
            waiting.rows = self._rows(request)
        except Exception as problem:
            waiting.rows = failure(problem)
        if large:
            self._decoding.record(len(request.body), self._clock.monotonic() - start)

    def _rows(self, request: ModelRequest) -> Any:
        if self._decode_request is not None:
            return self._decode_request(request)
        return self._model.decode(request.body, request.header(b"content-type"))

    def _encode(self, request: ModelRequest, prediction: Any) -> ModelAnswer:
        if isinstance(prediction, ModelAnswer):
            return prediction
        try:
            return self._model.encode(prediction, request.header(b"accept"))
        except Exception as problem:
            return failure(problem)

    def _first_group(self, batch: list[_Waiting], answers: list[ModelAnswer | None]) -> list[int]:
        """Chooses at most `max_rows` rows; a larger request is alone."""
        group: list[int] = []
        total = 0
        for at, waiting in enumerate(batch):
            if answers[at] is None:
                total += waiting.count
                if group and total > self._limits.max_rows:
                    break
                group.append(at)
        return group

    def _predict(self, rows: list[Any]) -> Sequence[Any]:
        try:
            return self._model.predict(rows)
        except Exception as problem:
            if len(rows) == 1:
                return [failure(problem)]
            # One bad request must not fail others.
            return [self._predict([each])[0] for each in rows]


class _Pace:
    """Estimates seconds per byte from recent batches."""

    def __init__(self) -> None:
        self._bytes = 0.0
        self._seconds = 0.0

    def expected(self, size: int) -> float:
        """Returns seconds; infinite before the first batch."""
        if self._bytes == 0:
            return float("inf")
        return self._seconds / self._bytes * size

    def record(self, size: int, seconds: float) -> None:
        self._bytes = self._bytes * _FORGETTING + max(size, 1)
        self._seconds = self._seconds * _FORGETTING + seconds
