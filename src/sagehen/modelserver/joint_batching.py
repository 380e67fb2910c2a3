"""Batching over several models: what is ready for any in one turn is predicted in one call."""

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

from sagehen.clock import Clock
from sagehen.modelserver.batch_limits import BatchLimits
from sagehen.modelserver.batching import Batcher
from sagehen.modelserver.contract import Answer, BatchModel, JointCaller, Request
from sagehen.modelserver.replies import queue_full

__all__ = ["JointBatching", "JointRunner"]

LARGEST_JOINT_BYTES = 4 * 1024
"""A larger body has many rows: its own model's call, which takes them all, is quicker."""


class _Part:
    """The rows of one request, and whose model they are for."""

    __slots__ = ("count", "model", "rows")

    def __init__(self, model: BatchModel, rows: Any) -> None:
        self.model = model
        self.rows = rows
        self.count = int(rows.count)


class _Predicted(NamedTuple):
    model: BatchModel
    prediction: Any


class _Joint:
    """All models of one caller as the one model of a Batcher. Each request knows its own."""

    def __init__(self, caller: JointCaller) -> None:
        self._caller = caller

    def decode(self, body: bytes, content_type: str) -> Any:
        raise NotImplementedError("the request says of which model it is")

    def decode_request(self, request: Request) -> _Part:
        assert isinstance(request.runner, JointRunner)
        model = request.runner.model
        return _Part(model, model.decode(request.body, request.header(b"content-type")))

    def predict(self, batch: Sequence[_Part]) -> list[_Predicted]:
        predictions = self._caller.predict_jointly([(part.model, part.rows) for part in batch])
        return [
            _Predicted(part.model, prediction)
            for part, prediction in zip(batch, predictions, strict=True)
        ]

    def encode(self, prediction: _Predicted, accept: str) -> Answer:
        return prediction.model.encode(prediction.prediction, accept)

    def close(self) -> None: ...


class JointBatching:
    """The queue before all models of one container that are predicted together."""

    def __init__(
        self,
        caller: JointCaller,
        executor: Executor,
        max_waiting: int,
        limits: BatchLimits,
        clock: Clock,
    ) -> None:
        """`max_waiting` requests of each model."""
        self._max_waiting = max_waiting
        # Each model's queue has its bound.
        self._batcher = Batcher(_Joint(caller), executor, sys.maxsize, limits, clock)

    def runner(self, model: BatchModel, own: Batcher) -> "JointRunner":
        """The queue before one of the models. `own` takes what is better not predicted together."""
        return JointRunner(model, own, self._batcher, self._max_waiting)


class JointRunner:
    """One model's part of the queue."""

    def __init__(self, model: BatchModel, own: Batcher, joint: Batcher, max_waiting: int) -> None:
        self.model = model
        self._own = own
        self._joint = joint
        self._max_waiting = max_waiting
        self._under_way = 0
        """Requests of this model in the joint queue, or worked on."""
        self._idle: asyncio.Future[None] | None = None

    def submit(self, request: Request) -> None:
        if len(request.body) > LARGEST_JOINT_BYTES:
            self._own.submit(request)
        elif self._under_way >= self._max_waiting:
            request.respond(queue_full())
        else:
            self._under_way += 1
            request.runner = self
            self._joint.submit(request)

    def answered(self) -> None:
        """One of its requests has its answer."""
        self._under_way -= 1
        if not self._under_way and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    async def drained(self) -> None:
        await self._own.drained()
        if self._under_way:
            self._idle = self._idle or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    @property
    def slots(self) -> int:
        return self._own.slots

    @property
    def stuck(self) -> bool:
        return False  # a framework's prediction ends
