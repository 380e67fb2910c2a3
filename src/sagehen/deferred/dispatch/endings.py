"""The end of a request: its object where that is small, its final state and its notice in one
transaction; then its metrics, once."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from sagehen.clock import Clock
from sagehen.deferred.dispatch.notices import notice_of
from sagehen.deferred.dispatch.together import Together
from sagehen.deferred.record import Record
from sagehen.domain.asynchronous import AsyncState, Outcome, QueuedRequest
from sagehen.domain.notices import Notice
from sagehen.objects.store import ObjectStore, SmallObject
from sagehen.patience import Patience
from sagehen.store import async_leases
from sagehen.store.grouped import GroupedWrites, attempt
from sagehen.store.topics import publish

__all__ = ["Ended", "Ending", "Endings"]

log = logging.getLogger(__name__)


@dataclass
class Ending:
    """What came of a request, and what it took."""

    outcome: Outcome
    body: bytes | None = None
    """The response, where it is small enough for a notice."""
    variant_name: str | None = None
    failed_by: tuple[str, ...] = ()
    """Metrics that count this kind of failure."""
    download_seconds: float | None = None
    model_seconds: float | None = None
    upload_seconds: float | None = None


class Ended(Enum):
    """What came of ending a request."""

    DONE = auto()
    TAKEN = auto()
    """It is no longer this attempt's: nothing was written or told."""
    NOT_STORED = auto()
    """Its object has to be put by itself: nothing was written or told."""


class _End(NamedTuple):
    """What is written of an end."""

    row: async_leases.Ended
    small: SmallObject | None
    notice: Notice | None

    @property
    def held(self) -> tuple[int, int]:
        return self.row.sequence, self.row.attempt


class _Written(NamedTuple):
    ended: Ended
    told: bool = True
    """Its notice is on its way, where there is one."""


class Endings:
    """
    Args:
        patience: how long a database that is away is waited for.
    """

    def __init__(
        self,
        writes: GroupedWrites,
        objects: ObjectStore,
        patience: Patience,
        record: Record,
        region: str,
        clock: Clock,
    ) -> None:
        self._objects = objects
        self._together = Together(writes, self._write)
        self._patience = patience
        self._record = record
        self._region = region
        self._clock = clock

    async def end(
        self, queued: QueuedRequest, ending: Ending, small: SmallObject | None = None
    ) -> Ended:
        """Write the end down and publish its notice, in one transaction.

        Args:
            small: the answer's object, where it is not there yet; it is put in the same one.

        Raises:
            SQLAlchemyError, StateFull: it could not be written. Its lease will run out.
        """
        now = self._clock.now()
        notice = notice_of(queued, ending.outcome, ending.body, self._region, now)
        about = _dimensions(queued, ending)
        if notice is not None:
            notice = msgspec.structs.replace(notice, dimensions=about)

        row = async_leases.Ended(queued.sequence, queued.attempt, ending.outcome, now)
        end = _End(row, small, notice)
        began = self._clock.monotonic()
        written = await self._patience(lambda: self._together.put(end))
        if written.ended is not Ended.DONE:
            return written.ended
        if small is not None:
            ending.upload_seconds = self._clock.monotonic() - began
        for name, value in _measures(queued, ending, now):
            self._record(name, about, value)
        if not written.told:
            self._record("NotificationFailures", about, 1)
        return Ended.DONE

    def _write(self, connection: Connection, ends: Sequence[_End]) -> list[_Written]:
        """What came of each. Runs in the thread that writes."""
        ours = async_leases.hold(connection, {end.held for end in ends})
        smalls = [end for end in ends if end.small is not None and end.held in ours]
        put = self._objects.put_rows(connection, [end.small for end in smalls if end.small])
        not_put = {end.held for end, is_put in zip(smalls, put, strict=True) if not is_put}
        async_leases.finish_all(connection, [end.row for end in ends if end.held in ours - not_put])
        return [_told(connection, end, ours, not_put) for end in ends]


_Held = tuple[int, int]


def _told(connection: Connection, end: _End, ours: set[_Held], not_put: set[_Held]) -> _Written:
    if end.held not in ours:
        return _Written(Ended.TAKEN)
    if end.held in not_put:
        return _Written(Ended.NOT_STORED)
    return _Written(Ended.DONE, end.notice is None or _published(connection, end.notice))


def _published(connection: Connection, notice: Notice) -> bool:
    """Whatever is wrong with a notice changes nothing about the request."""
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


def _dimensions(queued: QueuedRequest, ending: Ending) -> dict[str, str]:
    about = {"endpoint": queued.request.endpoint_name}
    return about | ({"variant": ending.variant_name} if ending.variant_name else {})


def _measures(queued: QueuedRequest, ending: Ending, now: float) -> Iterator[tuple[str, float]]:
    """Names and values, in CloudWatch's units."""
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
        # SageMaker's documentation spells it with three s; who asks for either finds it.
        yield "InvocationsProcesssed", 1
        yield "InvocationsProcessed", 1
        yield "Invocation4XXErrors", float(400 <= status < 500)
        yield "Invocation5XXErrors", float(status >= 500)
