"""The objects that come of requests: one for the answer or one for the failure, never both.

Each says in its metadata which request it belongs to. So an attempt that follows another finds what
that one may have written, and only has to write it down in the queue.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec

from sagehen.deferred.dispatch.spool import Spool
from sagehen.domain.asynchronous import AsyncState, Outcome, QueuedRequest
from sagehen.domain.locations import Location, parse_location
from sagehen.domain.objects import Attributes, ObjectInfo
from sagehen.errors import Invalid, NotFound
from sagehen.objects.store import ObjectStore, SmallObject
from sagehen.threads import Threads

__all__ = ["Found", "Outputs", "mark_of"]

MARK = "sagehen-request"
OUTCOME = "sagehen-outcome"


class Found(NamedTuple):
    """What an earlier attempt has written."""

    outcome: Outcome
    body: bytes | None
    """Where it is small enough for a notice."""


def mark_of(queued: QueuedRequest) -> str:
    """Of all that is written for a request, until it is redriven."""
    return f"{queued.request.request_id}/{queued.redrives}"


class Outputs:
    """
    Args:
        most_body_bytes: larger objects are found without their bytes.
    """

    def __init__(self, objects: ObjectStore, threads: Threads, most_body_bytes: int) -> None:
        self._objects = objects
        self._threads = threads
        self._most_body_bytes = most_body_bytes

    async def put(self, queued: QueuedRequest, outcome: Outcome, spool: Spool) -> None:
        """Write the object at `outcome.location`: it is there whole when this returns, or not.

        Raises:
            SagehenError, OSError, SQLAlchemyError: it was not written.
        """
        location, attributes = _describe(queued, outcome)
        await self._threads.run(lambda: self._put(location, spool, attributes))

    def small(self, queued: QueuedRequest, outcome: Outcome, spool: Spool) -> SmallObject | None:
        """The same object, where it is so small that it may be a row; None where it has to be
        `put`."""
        data = spool.held
        if data is None:
            return None
        try:
            location, attributes = _describe(queued, outcome)
        except Invalid:
            return None
        return SmallObject(location.bucket, location.key, data, attributes)

    def _put(self, location: Location, spool: Spool, attributes: Attributes) -> None:
        draft = spool.take_draft()
        try:
            self._objects.put(location.bucket, location.key, draft, attributes)
        finally:
            # Nothing, where it has become the object.
            draft.discard()

    async def find(self, queued: QueuedRequest) -> Found | None:
        """What an earlier attempt has written; the failure object from before a redrive goes.

        Raises:
            Unavailable, OSError, SQLAlchemyError: that cannot be seen now.
        """
        return await self._threads.run(lambda: self._find(queued))

    def _find(self, queued: QueuedRequest) -> Found | None:
        output = queued.request.output
        answer = self._head(output.location)
        if answer is not None and answer.attributes.metadata.get(MARK) == mark_of(queued):
            outcome = Outcome(
                state=AsyncState.SUCCEEDED,
                content_type=answer.attributes.headers.get("content-type"),
                location=output.location,
                status=200,
            )
            return Found(outcome, self._body(answer))
        failure = output.failure_location and self._head(output.failure_location)
        return self._failed(queued, failure) if failure else None

    def _failed(self, queued: QueuedRequest, failure: ObjectInfo) -> Found | None:
        metadata: Mapping[str, str] = failure.attributes.metadata
        mark = metadata.get(MARK, "")
        if mark == mark_of(queued):
            outcome = msgspec.json.decode(metadata[OUTCOME], type=Outcome)
            return Found(outcome, self._body(failure))
        if mark.partition("/")[0] == queued.request.request_id:
            self._objects.delete(failure.bucket, [failure.key])
        return None

    def _head(self, url: str) -> ObjectInfo | None:
        with suppress(NotFound):
            location = parse_location(url)
            return self._objects.head(location.bucket, location.key)
        return None

    def _body(self, info: ObjectInfo) -> bytes | None:
        if info.size > self._most_body_bytes:
            return None
        with self._objects.open(info.bucket, info.key) as found:
            return b"".join(found.chunks())


def _describe(queued: QueuedRequest, outcome: Outcome) -> tuple[Location, Attributes]:
    assert outcome.location is not None
    location = parse_location(outcome.location)
    metadata = {MARK: mark_of(queued)}
    if outcome.state is not AsyncState.SUCCEEDED:
        metadata[OUTCOME] = json.dumps(msgspec.to_builtins(outcome), separators=(",", ":"))
    headers = {"content-type": outcome.content_type or "application/octet-stream"}
    return location, Attributes(headers=headers, metadata=metadata)
