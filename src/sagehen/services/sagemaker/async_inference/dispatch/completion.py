"""Ends requests: object, state and notice in one transaction, many requests together; then
metrics."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from sagehen.base.clock import Clock
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
from sagehen.state.group_commit import CoalescingWriter, GroupCommit, attempt

__all__ = ["AsyncEnding", "EndedAttempt", "Endings"]

log = logging.getLogger(__name__)


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
    """The object cannot be a row: put it into the store first; nothing was written."""


class _End(NamedTuple):
    row: async_leases.EndedRow
    small: SmallObject | None
    notice: Notice | None

    @property
    def held(self) -> tuple[int, int]:
        return self.row.sequence, self.row.attempt


class _Written(NamedTuple):
    ended: EndedAttempt
    notified: bool = True
    """The notice was published, if any."""


class Endings:
    """Ends requests in the database and records their metrics."""

    def __init__(
        self,
        writes: GroupCommit,
        objects: ObjectStore,
        retry: RetryPolicy,
        record: Record,
        region: str,
        clock: Clock,
    ) -> None:
        self._objects = objects
        self._writer = CoalescingWriter(writes, self._write)
        self._retry = retry
        self._record = record
        self._region = region
        self._clock = clock

    async def end(
        self, queued: QueuedRequest, ending: AsyncEnding, small: SmallObject | None = None
    ) -> EndedAttempt:
        """Writes the end and publishes its notice, in one transaction.

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
        written = await self._retry(lambda: self._writer.put(end))
        if written.ended is not EndedAttempt.DONE:
            return written.ended
        if small is not None:
            ending.upload_seconds = self._clock.monotonic() - began
        for name, value in _measures(queued, ending, now):
            self._record(name, about, value)
        if not written.notified:
            self._record("NotificationFailures", about, 1)
        return EndedAttempt.DONE

    def _write(self, connection: Connection, ends: Sequence[_End]) -> list[_Written]:
        """Runs in the thread that writes."""
        held_by_us = async_leases.hold(connection, {end.held for end in ends})
        smalls = [end for end in ends if end.small is not None and end.held in held_by_us]
        put = self._objects.put_rows(connection, [end.small for end in smalls if end.small])
        not_put = {end.held for end, is_put in zip(smalls, put, strict=True) if not is_put}
        async_leases.finish_all(
            connection, [end.row for end in ends if end.held in held_by_us - not_put]
        )
        return [_publish_notice(connection, end, held_by_us, not_put) for end in ends]


_Held = tuple[int, int]


def _publish_notice(
    connection: Connection, end: _End, held_by_us: set[_Held], not_put: set[_Held]
) -> _Written:
    if end.held not in held_by_us:
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
