"""The result of one batch: its part of the output, and the records that failed."""

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

__all__ = ["BatchResult", "Batches", "FailedRecord", "FailureSearch"]

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


class FailureSearch:
    """Counts failing records while they are looked for.

    Args:
        found: with earlier runners.
        is_too_many: says of a number of failed records, and the batch that fails next, whether the
            job has failed anyway.
    """

    def __init__(self, found: int, is_too_many: Callable[[int, Batch], bool]) -> None:
        self.found = found
        self._is_too_many = is_too_many

    def is_hopeless(self, batch: Batch) -> bool:
        return self._is_too_many(self.found, batch)


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
    search: FailureSearch | None = None
    """for failing records; None: a failing record is an error of its object"""

    async def result(self, batch: Batch) -> BatchResult:
        """Raises BatchError."""
        try:
            return BatchResult(await self._output(batch))
        except BatchError as error:
            if self.search is None or self.search.is_hopeless(batch):
                raise
            if batch.records == 1:
                self.search.found += 1
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
