"""Natural batching: requests ready in one turn of the event loop form a batch.

Without a delay, a lone request is predicted at once; batches form under load.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from sagehen.base.clock import SYSTEM, Clock
from sagehen.containers.modelserver.contract import (
    BatchModel,
    ModelAnswer,
    ModelRequest,
    RequestBatchModel,
)
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
    __slots__ = ("decoding", "request", "rows", "since")

    def __init__(self, request: ModelRequest, since: float) -> None:
        self.request = request
        self.since = since
        self.rows: Any = None
        """After decoding: rows, or an error's answer."""
        self.decoding: Future[None] | None = None
        """in another thread, which sets `rows`"""

    @property
    def count(self) -> int:
        if self.rows is None:
            return 1
        return 0 if isinstance(self.rows, ModelAnswer) else int(self.rows.count)


class Batcher:
    """One model's queue; predicts one batch at a time.

    Args:
        decoder: has a thread that decodes the next large body while a batch is predicted.
    """

    def __init__(
        self,
        model: BatchModel | RequestBatchModel,
        executor: Executor,
        max_waiting: int,
        limits: BatchLimits = NATURAL,
        clock: Clock = SYSTEM,
        decoder: Executor | None = None,
    ) -> None:
        self._model = model
        if isinstance(model, RequestBatchModel):
            self._decode_rows = model.decode_request
        else:
            self._decode_rows = partial(_decode_body, model)
        self._executor = executor
        self._decoder = decoder
        self._max_waiting = max_waiting
        self._limits = limits
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._busy = False
        self._in_thread = False
        """A batch is in the executor."""
        self._gathered_rows = 0
        self._timer: asyncio.TimerHandle | None = None
        self._predict_pace = _Pace()
        self._decode_pace = _Pace()
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
            self._gathered_rows += self._count_rows(waiting)
            if self._gathered_rows >= self._limits.max_rows:
                self._timer.cancel()
                self._work()
        elif self._in_thread:
            self._decode_ahead()

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
        remaining = self._time_left()
        if remaining > 0:
            self._timer = self._loop.call_later(remaining, self._work)
        else:
            self._work()

    def _time_left(self) -> float:
        """Returns seconds; 0 or less when the batch is full."""
        if not self._limits.delay_seconds:
            return 0.0
        self._gathered_rows = 0
        for waiting in self._waiting:
            self._gathered_rows += self._count_rows(waiting)
            if self._gathered_rows >= self._limits.max_rows:
                return 0.0
        due = self._waiting[0].since + self._limits.delay_seconds
        return due - self._clock.monotonic()

    def _count_rows(self, waiting: _Waiting) -> int:
        """Returns the request's rows. A body that is slow to decode fills the batch, to reach the
        thread at once.
        """
        if waiting.decoding is not None or self._is_slow_to_decode(waiting):
            return self._limits.max_rows
        self._decode(waiting)
        return waiting.count

    def _work(self) -> None:
        self._timer = None
        batch, size = self._take_batch()
        if self._predict_pace.expected(size) <= QUICK_SECONDS:
            self._finish(batch, self._measured(batch))
        else:
            work = self._loop.run_in_executor(self._executor, self._measured, batch)
            self._in_thread = True
            work.add_done_callback(lambda done: self._finish(batch, done.result()))
            self._decode_ahead()

    def _decode_ahead(self) -> None:
        """Decodes the next body meanwhile, if that takes long: a framework that predicts lets other
        threads run."""
        if self._decoder is None or not self._waiting:
            return
        waiting = self._waiting[0]
        if waiting.rows is not None or waiting.decoding is not None or waiting.request.abandoned:
            return
        if self._is_slow_to_decode(waiting):
            waiting.decoding = self._decoder.submit(self._decode_now, waiting)

    def _is_slow_to_decode(self, waiting: _Waiting) -> bool:
        size = len(waiting.request.body)
        return size > SMALL_BYTES and self._decode_pace.expected(size) > QUICK_SECONDS

    def _take_batch(self) -> tuple[list[_Waiting], int]:
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
            request.mark_begun()
            batch.append(waiting)
            size += len(request.body)
            rows += waiting.count
        return batch, size

    def _finish(self, batch: list[_Waiting], answers: list[ModelAnswer | None]) -> None:
        self._in_thread = False
        deferred = []
        for waiting, answer in zip(batch, answers, strict=True):
            if answer is None:
                deferred.append(waiting)
            else:
                waiting.request.respond(answer)
        self._waiting.extendleft(reversed(deferred))
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
        except Exception as error:  # a faulty adapter: requests need answers
            answers = [failure(error) for _ in batch]
        seconds = self._clock.monotonic() - start
        pairs = zip(batch, answers, strict=True)
        self._predict_pace.record(
            sum(len(waiting.request.body) for waiting, answer in pairs if answer), seconds
        )
        self._times.record(seconds)
        return answers

    def _answers(self, batch: list[_Waiting]) -> list[ModelAnswer | None]:
        """Returns None for requests that must wait for the next call."""
        for waiting in batch:
            self._decode(waiting)
        answers = [
            waiting.rows if isinstance(waiting.rows, ModelAnswer) else None for waiting in batch
        ]
        group = self._first_group(batch, answers)
        if group:
            predictions = self._predict([batch[at].rows for at in group])
            for at, prediction in zip(group, predictions, strict=True):
                answers[at] = self._encode(batch[at].request, prediction)
        return answers

    def _decode(self, waiting: _Waiting) -> None:
        # One that has not begun behind those of other models is decoded here.
        if waiting.decoding is not None and not waiting.decoding.cancel():
            waiting.decoding.result()
        elif waiting.rows is None:
            self._decode_now(waiting)

    def _decode_now(self, waiting: _Waiting) -> None:
        request = waiting.request
        large = len(request.body) > SMALL_BYTES
        start = self._clock.monotonic() if large else 0.0
        try:
            waiting.rows = self._decode_rows(request)
        except Exception as error:
            waiting.rows = failure(error)
        if large:
            self._decode_pace.record(len(request.body), self._clock.monotonic() - start)

    def _encode(self, request: ModelRequest, prediction: Any) -> ModelAnswer:
        if isinstance(prediction, ModelAnswer):
            return prediction
        try:
            return self._model.encode(prediction, request.header(b"accept"))
        except Exception as error:
            return failure(error)

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
        except Exception as error:
            if len(rows) == 1:
                return [failure(error)]
            # One bad request must not fail others.
            return [self._predict([row])[0] for row in rows]


def _decode_body(model: BatchModel, request: ModelRequest) -> Any:
    return model.decode(request.body, request.header(b"content-type"))


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
