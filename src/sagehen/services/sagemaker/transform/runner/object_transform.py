"""Transforms one object: it is read, cut, sent and written, all at once.

read → cut → ┬─ batch ─ answer ─┬→ in order → write
             ├─ batch ─ answer ─┤
             └─ batch ─ answer ─┘
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from sagehen.base.user_code_errors import without_traceback
from sagehen.services.sagemaker.transform.records.batches import Batch, RecordsError
from sagehen.services.sagemaker.transform.records.gzip import Gunzip
from sagehen.services.sagemaker.transform.runner.batch_results import (
    Batches,
    BatchResult,
    FailedRecord,
)
from sagehen.services.sagemaker.transform.runner.errors import ObjectError
from sagehen.services.sagemaker.transform.runner.listing import InputObject
from sagehen.services.sagemaker.transform.runner.object_plans import ObjectPlans
from sagehen.services.sagemaker.transform.runner.output_keys import errors_location
from sagehen.services.sagemaker.transform.runner.outputs import Output, Outputs
from sagehen.services.sagemaker.transform.runner.parquet import parquet_pieces
from sagehen.services.sagemaker.transform.runner.reading import ObjectReader
from sagehen.services.sagemaker.transform.runner.reports import Reports
from sagehen.services.sagemaker.transform.runner.store import ObjectStore
from sagehen.services.sagemaker.transform.runner.window import Window

__all__ = ["ObjectResult", "ObjectTransform", "Shared", "read_pieces", "write_errors"]

CONCURRENT_READS = 4
"""large objects that are read at once; more may wait for answers"""
BATCH_BYTES = 8192
"""that a batch takes beside its payload: there may be very many of single records"""
CONTENT_TYPE_OF_ERRORS = "application/jsonlines"


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The parts that all objects of a job share."""

    store: ObjectStore
    outputs: Outputs
    window: Window
    reports: Reports
    batches: Batches
    """but for what differs by object"""
    plans: ObjectPlans
    gunzips: bool
    output_type: str | None
    """the content type of outputs"""
    large_reads: asyncio.Semaphore


@dataclass(frozen=True, slots=True)
class ObjectResult:
    size: int
    """of the object in the store"""
    records: int
    failed_records: int


async def read_pieces(
    reader: ObjectReader, gunzips: bool, large_reads: asyncio.Semaphore
) -> AsyncGenerator[bytes]:
    """Yields the content. Raises ObjectError or RecordsError."""
    gunzip = Gunzip() if gunzips else None

    def unpacked(data: bytes) -> Iterable[bytes]:
        return gunzip.feed(data) if gunzip is not None else (data,)

    first = await reader.first()
    if reader.is_at_end and gunzip is None:
        yield first
        return
    async with large_reads:
        for piece in unpacked(first):
            yield piece
        async with aclosing(reader.rest()) as rest:
            async for data in rest:
                for piece in unpacked(data):
                    yield piece
    if gunzip is not None:
        gunzip.end()


class ObjectTransform:
    """The transform of one object."""

    def __init__(self, item: InputObject, shared: Shared) -> None:
        self._item = item
        self._shared = shared
        self._plan = plan = shared.plans.plan(item.source.key)
        self._batches = replace(
            shared.batches, processing=plan.processing, quotes=plan.quoted_newlines
        )
        self._reader = ObjectReader(shared.store, item)
        self._output = shared.outputs.open(item.output, shared.output_type)
        self._errors: Output | None = None
        self._queue: asyncio.Queue[tuple[Batch, asyncio.Task[BatchResult]] | None] = asyncio.Queue()
        """in the order of the object; bounded by the window"""
        self._records = 0
        self._counted = 0
        """records that the reports count already"""
        self._counted_bytes = 0
        """as above, at most the object's size"""
        self._failed = 0

    async def run(self) -> ObjectResult:
        """Raises ObjectError, JobError or Unavailable; then there is no output."""
        try:
            if self._item.problem is not None:
                raise ObjectError("ClientError", self._item.problem)
            await self._transform()
            await self._finish()
        except BaseException as error:
            self._shared.reports.unanswered(self._counted, self._counted_bytes)
            await self._output.abort()
            if self._errors is not None:
                await self._errors.abort()
            if isinstance(error, RecordsError):
                raise ObjectError("ClientError", str(error)) from error
            raise
        self._shared.reports.unanswered(0, self._counted_bytes)
        size = self._reader.size or 0
        if self._item.size is None:
            self._shared.reports.sized(size)
        return ObjectResult(size, self._records, self._failed)

    async def _transform(self) -> None:
        writing = asyncio.create_task(self._write_results())
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_EXCEPTION)
            for task in (writing, reading):
                if task.done():
                    task.result()
        finally:
            await _cancel(reading, writing)
            await self._drop_rest()

    async def _read(self) -> None:
        """Sends batches as far as the window allows."""
        shared = self._shared
        cutter = self._plan.cutter
        if self._plan.parquet_as is not None:
            pieces = parquet_pieces(self._reader, self._plan.parquet_as, shared.large_reads)
        else:
            pieces = read_pieces(self._reader, shared.gunzips, shared.large_reads)
        async with aclosing(pieces):
            async for piece in pieces:
                for batch in cutter.feed(piece):
                    await self._send(batch)
        for batch in cutter.end():
            await self._send(batch)
        self._queue.put_nowait(None)

    async def _send(self, batch: Batch) -> None:
        await self._shared.window.take(_held_bytes(batch))
        task = asyncio.create_task(self._batches.result(batch))
        self._queue.put_nowait((batch, task))

    async def _write_results(self) -> None:
        window, reports = self._shared.window, self._shared.reports
        while (entry := await self._queue.get()) is not None:
            batch, task = entry
            held = _held_bytes(batch)
            try:
                result = await task
                window.add(len(result.output))
                held += len(result.output)
                self._records += batch.records
                self._counted += batch.records
                size = self._size_of(batch)
                self._counted_bytes += size
                reports.answered(batch.records, size)
                await self._output.write(result.output)
                if result.failed:
                    await self._write_errors(result.failed)
            finally:
                if not task.done():
                    await _cancel(task)
                window.give(held)

    def _size_of(self, batch: Batch) -> int:
        """Returns the batch's bytes in the object, as far as they are known before its end: what is
        packed counts when it has ended."""
        if self._shared.gunzips or self._plan.parquet_as is not None:
            return 0
        # A payload ends without the newline of its last line.
        size = len(batch.payload) + (not batch.payload.endswith(b"\n"))
        return min(size, (self._item.size or 0) - self._counted_bytes)

    async def _write_errors(self, failed: tuple[FailedRecord, ...]) -> None:
        self._failed += len(failed)
        if self._errors is None:
            location = errors_location(self._item.output)
            self._errors = self._shared.outputs.open(location, CONTENT_TYPE_OF_ERRORS)
        for record in failed:
            await self._errors.write(_error_line(record))

    async def _finish(self) -> None:
        """The errors come first: who sees an output sees its errors, too."""
        if self._errors is not None:
            await self._errors.finish()
        if self._failed and self._failed == self._records:
            await self._output.abort()
        else:
            await self._output.finish()

    async def _drop_rest(self) -> None:
        """Gives back what batches behind an error hold."""
        while not self._queue.empty():
            entry = self._queue.get_nowait()
            if entry is not None:
                batch, task = entry
                await _cancel(task)
                self._shared.window.give(_held_bytes(batch))


def _held_bytes(batch: Batch) -> int:
    return len(batch.payload) + BATCH_BYTES


def _error_line(record: FailedRecord) -> bytes:
    error = record.error
    # The traceback is in the container's log.
    message = without_traceback(error.reason)
    line = {"record": record.number, "status": error.status, "message": message}
    return msgspec.json.encode(line) + b"\n"


async def write_errors(shared: Shared, item: InputObject, failed: Iterable[FailedRecord]) -> None:
    """Writes the errors of an object without output."""
    output = shared.outputs.open(errors_location(item.output), CONTENT_TYPE_OF_ERRORS)
    for record in failed:
        await output.write(_error_line(record))
    await output.finish()


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
