"""Natural batching: what is ready in one turn of the event loop is predicted in one call.

Nothing waits for a timer: a lone request goes at once, and under load batches form by themselves.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

from sagehen.clock import SYSTEM, Clock
from sagehen.modelserver.contract import Answer, BatchModel, Request
from sagehen.modelserver.replies import abandoned, failure, queue_full

__all__ = ["BATCH_SLOTS", "Batcher"]

MAX_BATCH_ROWS = 4096
BATCH_SLOTS = 256
"""Enough for batches to form, also while another is worked on."""
MAX_BATCH_BYTES = 256 * 1024
QUICK_SECONDS = 0.002
"""Work expected to take longer than this goes to a thread, so that the loop stays free."""

_FORGETTING = 0.9


class Batcher:
    """The queue before one model that predicts in batches; at most one batch is worked on."""

    def __init__(
        self,
        model: BatchModel,
        executor: Executor,
        max_waiting: int,
        max_rows: int = MAX_BATCH_ROWS,
        clock: Clock = SYSTEM,
    ) -> None:
        self._model = model
        self._decode_request = getattr(model, "decode_request", None)
        self._executor = executor
        self._max_waiting = max_waiting
        self._max_rows = max_rows
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Request] = deque()
        self._busy = False
        self._pace = _Pace()
        self._idle: asyncio.Future[None] | None = None

    def submit(self, request: Request) -> None:
        if len(self._waiting) >= self._max_waiting:
            request.respond(queue_full())
            return
        self._waiting.append(request)
        if not self._busy:
            # After this turn: the loop hands over what other connections have ready first.
            self._busy = True
            self._loop.call_soon(self._turn)

    async def drained(self) -> None:
        if self._busy:
            self._idle = self._idle or self._loop.create_future()
            await asyncio.shield(self._idle)

    @property
    def slots(self) -> int:
        return min(BATCH_SLOTS, self._max_waiting)

    @property
    def stuck(self) -> bool:
        return False  # a framework's prediction ends

    def _turn(self) -> None:
        batch, size = self._take()
        if self._pace.expected(size) <= QUICK_SECONDS:
            self._finish(batch, self._measured(batch, size))
        else:
            work = self._loop.run_in_executor(self._executor, self._measured, batch, size)
            work.add_done_callback(lambda done: self._finish(batch, done.result()))

    def _take(self) -> tuple[list[Request], int]:
        """The next batch and its size in bytes, the measure of work known before decoding."""
        batch: list[Request] = []
        size = 0
        waiting = self._waiting
        while waiting and size < MAX_BATCH_BYTES:
            request = waiting.popleft()
            if request.abandoned:
                request.respond(abandoned())
                continue
            batch.append(request)
            size += len(request.body)
        return batch, size

    def _finish(self, batch: list[Request], answers: list[Answer]) -> None:
        for request, answer in zip(batch, answers, strict=True):
            request.respond(answer)
        if self._waiting:
            self._loop.call_soon(self._turn)
            return
        self._busy = False
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _measured(self, batch: list[Request], size: int) -> list[Answer]:
        start = self._clock.monotonic()
        answers = self._answers(batch)
        self._pace.record(size, self._clock.monotonic() - start)
        return answers

    def _answers(self, batch: list[Request]) -> list[Answer]:
        results = [self._decode(request) for request in batch]
        places = [at for at, result in enumerate(results) if not isinstance(result, Answer)]
        for some in self._split(places, results):
            predictions = self._predict([results[at] for at in some])
            for at, prediction in zip(some, predictions, strict=True):
                results[at] = self._encode(batch[at], prediction)
        return results

    def _decode(self, request: Request) -> Any:
        """The request's rows, or the answer that refuses them."""
        try:
            if self._decode_request is not None:
                return self._decode_request(request)
            return self._model.decode(request.body, request.header(b"content-type"))
        except Exception as problem:
            return failure(problem)

    def _encode(self, request: Request, prediction: Any) -> Answer:
        if isinstance(prediction, Answer):
            return prediction
        try:
            return self._model.encode(prediction, request.header(b"accept"))
        except Exception as problem:
            return failure(problem)

    def _split(self, places: list[int], rows: list[Any]) -> Iterator[list[int]]:
        """Groups of at most `max_rows` rows together; a bigger request stands alone."""
        group: list[int] = []
        total = 0
        for at in places:
            count = rows[at].count
            if group and total + count > self._max_rows:
                yield group
                group, total = [], 0
            group.append(at)
            total += count
        if group:
            yield group

    def _predict(self, rows: list[Any]) -> Sequence[Any]:
        """A prediction, or the answer that says why there is none, for each."""
        try:
            return self._model.predict(rows)
        except Exception as problem:
            if len(rows) == 1:
                return [failure(problem)]
            # One of them is bad: the others must not suffer.
            return [self._predict([each])[0] for each in rows]


class _Pace:
    """Seconds a byte of input takes, from what the last batches took."""

    def __init__(self) -> None:
        self._bytes = 0.0
        self._seconds = 0.0

    def expected(self, size: int) -> float:
        """Seconds; infinite while nothing is known."""
        if self._bytes == 0:
            return float("inf")
        return self._seconds / self._bytes * size

    def record(self, size: int, seconds: float) -> None:
        self._bytes = self._bytes * _FORGETTING + max(size, 1)
        self._seconds = self._seconds * _FORGETTING + seconds
