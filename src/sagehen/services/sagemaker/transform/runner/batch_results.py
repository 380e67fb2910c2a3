"""What becomes of one batch: its part of the output, and the records that failed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from sagehen.services.sagemaker.transform.data_processing.errors import DataProcessingError
from sagehen.services.sagemaker.transform.data_processing.processing import Processing
from sagehen.services.sagemaker.transform.records.assembly import assemble
from sagehen.services.sagemaker.transform.records.batches import Batch
from sagehen.services.sagemaker.transform.runner.errors import BatchError
from sagehen.services.sagemaker.transform.runner.halving import halve

__all__ = ["BatchResult", "Batches", "FailedRecord"]

THREAD_BYTES = 64 * 1024
"""Data processing of less takes less time than a change of threads."""


@dataclass(frozen=True, slots=True)
class FailedRecord:
    number: int
    """within the object, from 0"""
    error: BatchError


@dataclass(frozen=True, slots=True)
class BatchResult:
    output: bytes
    failed: tuple[FailedRecord, ...] = ()


@dataclass(frozen=True)
class Batches:
    """Turns batches into results."""

    answer: Callable[[bytes], Awaitable[bytes]]
    """raises BatchError"""
    split_type: str
    assemble_with: str
    processing: Processing | None = None
    quotes: bool = False
    """of CSV may hold newlines"""
    may_fail: Callable[[], bool] = lambda: False
    """whether failing records are looked for"""

    async def result(self, batch: Batch) -> BatchResult:
        """Raises BatchError."""
        try:
            return BatchResult(await self._output(batch))
        except BatchError as error:
            if not self.may_fail():
                raise
            if batch.records == 1:
                return BatchResult(b"", (FailedRecord(batch.first_record, error),))
        left, right = halve(batch, self.split_type, quotes=self.quotes)
        first, second = await self.result(left), await self.result(right)
        return BatchResult(first.output + second.output, first.failed + second.failed)

    async def _output(self, batch: Batch) -> bytes:
        processing = self.processing
        if processing is None:
            answer = await self.answer(batch.payload)
        else:
            payload = await _process(len(batch.payload), partial(processing.request, batch))
            answer = await self.answer(payload)
            size = len(batch.payload) + len(answer)
            answer = await _process(size, partial(processing.output, batch, answer))
        return assemble(batch, answer, self.assemble_with)


async def _process(size: int, work: Callable[[], bytes]) -> bytes:
    """Lets transfers go on meanwhile, if it takes long. Raises BatchError."""
    try:
        return work() if size < THREAD_BYTES else await asyncio.to_thread(work)
    except DataProcessingError as error:
        raise BatchError(error.failure, str(error), None, str(error)) from error
