"""The end of a request: its final state, its notice and its metrics, once."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection

from sagehen.clock import Clock
from sagehen.deferred.dispatch.notices import notice_of
from sagehen.deferred.dispatch.patience import Patience
from sagehen.deferred.record import Record
from sagehen.domain.asynchronous import AsyncState, Outcome, QueuedRequest
from sagehen.domain.notices import Notice
from sagehen.store import async_leases
from sagehen.store.grouped import GroupedWrites, attempt
from sagehen.store.topics import publish

__all__ = ["Ending", "Endings"]

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


class Endings:
    """
    Args:
        patience: how long a database that is away is waited for.
    """

    def __init__(
        self, writes: GroupedWrites, patience: Patience, record: Record, region: str, clock: Clock
    ) -> None:
        self._writes = writes
        self._patience = patience
        self._record = record
        self._region = region
        self._clock = clock

    async def end(self, queued: QueuedRequest, ending: Ending) -> bool:
        """Write the end down and publish its notice, in one transaction.

        False where the request is no longer this attempt's: then nothing was written or told.

        Raises:
            SQLAlchemyError, StateFull: it could not be written. Its lease will run out.
        """
        now = self._clock.now()
        notice = notice_of(queued, ending.outcome, ending.body, self._region, now)
        about = _dimensions(queued, ending)
        if notice is not None:
            notice = msgspec.structs.replace(notice, dimensions=about)

        def work(connection: Connection) -> bool | None:
            held = (queued.sequence, queued.attempt)
            if not async_leases.finish(connection, *held, ending.outcome, now):
                return None
            return notice is None or _published(connection, notice)

        told = await self._patience(lambda: self._writes.join(work))
        if told is None:
            return False
        for name, value in _measures(queued, ending, now):
            self._record(name, about, value)
        if not told:
            self._record("NotificationFailures", about, 1)
        return True


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
