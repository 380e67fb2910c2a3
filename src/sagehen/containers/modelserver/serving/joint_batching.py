"""Batches requests for several models into one call.

JointRunner (one per model) --small body--> Batcher over all models --> JointPrediction
                            --large body--> the model's own Batcher --> the model
"""

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

from sagehen.base.clock import Clock
from sagehen.containers.modelserver.contract import (
    BatchModel,
    JointPrediction,
    ModelAnswer,
    ModelRequest,
    Runner,
)
from sagehen.containers.modelserver.serving.batch_limits import BatchLimits
from sagehen.containers.modelserver.serving.batching import Batcher
from sagehen.containers.modelserver.serving.responses import queue_full

__all__ = ["JointBatching", "JointRunner"]

MAX_JOINT_BYTES = 4 * 1024
"""Larger bodies have many rows, quicker to predict alone."""


class _ModelRows:
    __slots__ = ("count", "model", "rows")

    def __init__(self, model: BatchModel, rows: Any) -> None:
        self.model = model
        self.rows = rows
        self.count = int(rows.count)


class _ModelPrediction(NamedTuple):
    model: BatchModel
    prediction: Any


class _AllModels:
    """A RequestBatchModel that predicts for all models."""

    def __init__(self, predictor: JointPrediction) -> None:
        self._predictor = predictor

    def decode_request(self, request: ModelRequest) -> _ModelRows:
        assert isinstance(request.counter, JointRunner)
        model = request.counter.model
        return _ModelRows(model, model.decode(request.body, request.header(b"content-type")))

    def predict(self, batch: Sequence[_ModelRows]) -> list[_ModelPrediction]:
        predictions = self._predictor.predict_jointly([(part.model, part.rows) for part in batch])
        return [
            _ModelPrediction(part.model, prediction)
            for part, prediction in zip(batch, predictions, strict=True)
        ]

    def encode(self, prediction: _ModelPrediction, accept: str) -> ModelAnswer:
        return prediction.model.encode(prediction.prediction, accept)

    def close(self) -> None: ...


class JointBatching:
    """The queue of models with one JointPrediction."""

    def __init__(
        self,
        predictor: JointPrediction,
        executor: Executor,
        max_waiting: int,
        limits: BatchLimits,
        clock: Clock,
    ) -> None:
        """`max_waiting` is per model."""
        self._max_waiting = max_waiting
        # Unbounded: each JointRunner has a bound.
        self._batcher = Batcher(_AllModels(predictor), executor, sys.maxsize, limits, clock)

    def runner(self, model: BatchModel, own: Runner) -> "JointRunner":
        """`own` takes large bodies."""
        return JointRunner(model, own, self._batcher, self._max_waiting)


class JointRunner:
    """One model's part of the queue, with its own bound and drain."""

    __slots__ = ("_idle", "_joint", "_max_waiting", "_own", "_unanswered", "model")

    def __init__(self, model: BatchModel, own: Runner, joint: Batcher, max_waiting: int) -> None:
        self.model = model
        self._own = own
        self._joint = joint
        self._max_waiting = max_waiting
        self._unanswered = 0
        """This model's requests, waiting or being predicted."""
        self._idle: asyncio.Future[None] | None = None

    def submit(self, request: ModelRequest) -> None:
        if len(request.body) > MAX_JOINT_BYTES:
            self._own.submit(request)
        elif self._unanswered >= self._max_waiting:
            request.respond(queue_full())
        else:
            self._unanswered += 1
            request.counter = self
            self._joint.submit(request)

    def answered(self) -> None:
        self._unanswered -= 1
        if not self._unanswered and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    async def drained(self) -> None:
        await self._own.drained()
        if self._unanswered:
            self._idle = self._idle or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    @property
    def slots(self) -> int:
        return self._own.slots

    @property
    def stuck(self) -> bool:
        return False  # a framework's prediction ends
