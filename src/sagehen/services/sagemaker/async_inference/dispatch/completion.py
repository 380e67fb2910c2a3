"""Ends requests: object, state and notice in one transaction, many requests together; then
metrics."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import msgspec
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from sagehen.base.clock import Clock
from sagehen.base.errors import Unavailable
from sagehen.base.retry import RetryPolicy
from sagehen.frame.context import Record
from sagehen.services.messaging.sns.records import Notice
from sagehen.services.messaging.sns.topic_store import publish
from sagehen.services.s3.storage.store import ObjectStore, SmallObject
from sagehen.services.sagemaker.async_inference import lease_store as async_leases
from sagehen.services.sagemaker.async_inference.dispatch.notices import notice_of
from sagehen.services.sagemaker.async_inference.records import (
    AsyncOutcome,
    AsyncState,
    QueuedRequest,
)
from sagehen.state.group_commit import GroupCommit, attempt

__all__ = ["AsyncEnding", "CoalescingWriter", "EndedAttempt", "Endings"]

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_TOGETHER = 128


class CoalescingWriter(Generic[Item, Result]):
    """Writes the items of many coroutines together; for one event loop.

    Args:
        write: returns a result for each item. If it raises, each item is tried alone.
    """

    def __init__(
        self,
        writes: GroupCommit,
        write: Callable[[Connection, Sequence[Item]], Sequence[Result]],
    ) -> None:
        self._writes = writes
        self._write = write
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._writing: asyncio.Task[None] | None = None

    async def put(self, item: Item) -> Result:
        """Write `item`; raises what `write` raises for it alone. A cancelled caller does not know
        whether it was written."""
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, result))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        return await result

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                count = min(len(self._waiting), MOST_TOGETHER)
                batch = [self._waiting.popleft() for _ in range(count)]
                await self._write_batch([one for one in batch if not one[1].done()])
        finally:
            self._writing = None

    async def _write_batch(self, batch: Sequence[tuple[Item, asyncio.Future[Result]]]) -> None:
        if not batch:
            return
        try:
            items = [item for item, _ in batch]
            results = await self._writes.join(partial(self._call, items))
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, OperationalError | Unavailable):
                # One item is at fault: write each alone.
                for one in batch:
                    await self._write_batch([one])
                return
            _fail(batch, error)
        except BaseException as error:
            _fail(batch, error)
            raise
        else:
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)

    def _call(self, items: Sequence[Item], connection: Connection) -> Sequence[Result]:
        return self._write(connection, items)


def _fail(batch: Sequence[tuple[Item, asyncio.Future[Result]]], error: BaseException) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)


@dataclass
class AsyncEnding:
    """A request's outcome and the times it took."""

    outcome: AsyncOutcome
    body: bytes | None = None
    """None if too large for a notice."""
    variant_name: str | None = None
    failed_by: tuple[str, ...] = ()
    download_seconds: float | None = None
    model_seconds: float | None = None
    upload_seconds: float | None = None


class EndedAttempt(Enum):
    """The result of ending a request."""

    DONE = auto()
    TAKEN = auto()
    """Another worker has the request; nothing was written."""
    NOT_STORED = auto()
    """Its object has to be put by itself; nothing was written."""


class _End(NamedTuple):
    row: async_leases.EndedRow
    small: SmallObject | None
    notice: Notice | None

    @property
    def held(self) -> tuple[int, int]:
        return self.row.sequence, self.row.attempt


class _Written(NamedTuple):
    ended: EndedAttempt
    told: bool = True
    """The notice was published, if any."""


class Endings:
    """Ends requests in the database and records their metrics."""

    def __init__(
        self,
        writes: GroupCommit,
        objects: ObjectStore,
        patience: RetryPolicy,
        record: Record,
        region: str,
        clock: Clock,
    ) -> None:
        self._objects = objects
        self._together = CoalescingWriter(writes, self._write)
        self._patience = patience
        self._record = record
        self._region = region
        self._clock = clock

    async def end(
        self, queued: QueuedRequest, ending: AsyncEnding, small: SmallObject | None = None
    ) -> EndedAttempt:
        """Write the end and publish its notice, in one transaction.

        Args:
            small: the answer's object, to be put in the same transaction.

        Raises:
            SQLAlchemyError, StateFull: nothing was written; the lease will run out.
        """
        now = self._clock.now()
        notice = notice_of(queued, ending.outcome, ending.body, self._region, now)
        about = _dimensions(queued, ending)
        if notice is not None:
            notice = msgspec.structs.replace(notice, dimensions=about)

        row = async_leases.EndedRow(queued.sequence, queued.attempt, ending.outcome, now)
        end = _End(row, small, notice)
        began = self._clock.monotonic()
        written = await self._patience(lambda: self._together.put(end))
        if written.ended is not EndedAttempt.DONE:
            return written.ended
        if small is not None:
            ending.upload_seconds = self._clock.monotonic() - began
        for name, value in _measures(queued, ending, now):
            self._record(name, about, value)
        if not written.told:
            self._record("NotificationFailures", about, 1)
        return EndedAttempt.DONE

    def _write(self, connection: Connection, ends: Sequence[_End]) -> list[_Written]:
        """Runs in the thread that writes."""
        ours = async_leases.hold(connection, {end.held for end in ends})
        smalls = [end for end in ends if end.small is not None and end.held in ours]
        put = self._objects.put_rows(connection, [end.small for end in smalls if end.small])
        not_put = {end.held for end, is_put in zip(smalls, put, strict=True) if not is_put}
        async_leases.finish_all(connection, [end.row for end in ends if end.held in ours - not_put])
        return [_told(connection, end, ours, not_put) for end in ends]


_Held = tuple[int, int]


def _told(connection: Connection, end: _End, ours: set[_Held], not_put: set[_Held]) -> _Written:
    if end.held not in ours:
        return _Written(EndedAttempt.TAKEN)
    if end.held in not_put:
        return _Written(EndedAttempt.NOT_STORED)
    return _Written(EndedAttempt.DONE, end.notice is None or _published(connection, end.notice))


def _published(connection: Connection, notice: Notice) -> bool:
    """Whether the notice was published; the request does not depend on it."""
    published, error = attempt(connection, lambda connection: publish(connection, notice))
    if published:
        return True
    about = {"action": "publish", "topic": notice.topic_arn, "id": notice.message_id}
    log.warning(
        "A notice could not be published: %s",
        error or "there is no such topic",
        exc_info=error,
        extra=about,
    )
    return False


def _dimensions(queued: QueuedRequest, ending: AsyncEnding) -> dict[str, str]:
    about = {"endpoint": queued.request.endpoint_name}
    return about | ({"variant": ending.variant_name} if ending.variant_name else {})


def _measures(
    queued: QueuedRequest, ending: AsyncEnding, now: float
) -> Iterator[tuple[str, float]]:
    """Yields values in CloudWatch's units."""
    status, received_at = ending.outcome.status, queued.request.received_at
    for name in ending.failed_by:
        yield name, 1
    if ending.outcome.state is AsyncState.FAILED:
        yield "InvocationFailures", 1
    seconds = (
        ("RequestDownloadLatency", ending.download_seconds),
        ("ModelLatency", ending.model_seconds),
        ("ResponseUploadLatency", ending.upload_seconds),
    )
    yield from ((name, value * 1e6) for name, value in seconds if value is not None)
    if ending.model_seconds is None:
        return
    yield "TimeInBacklog", max(0.0, (queued.started_at or now) - received_at) * 1e3
    yield "TotalProcessingTime", max(0.0, now - received_at) * 1e3
    if status is not None:
        # SageMaker's documentation has three s; both spellings are recorded.
        yield "InvocationsProcesssed", 1
        yield "InvocationsProcessed", 1
        yield "Invocation4XXErrors", float(400 <= status < 500)
        yield "Invocation5XXErrors", float(status >= 500)
