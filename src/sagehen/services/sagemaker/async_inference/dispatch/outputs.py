"""Stores a request's output: one object, for the answer or for the failure, never both.

Its metadata names the request, so that a later attempt finds it.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from sagehen.base.concurrency import Threads
from sagehen.base.errors import Invalid, NotFound
from sagehen.base.retry import AWAY, RetryPolicy
from sagehen.frame.s3_locations import Location, parse_location
from sagehen.services.s3.storage.files import MOST_HELD_BYTES, Draft
from sagehen.services.s3.storage.records import Attributes, ObjectInfo
from sagehen.services.s3.storage.store import ObjectStore, SmallObject
from sagehen.services.sagemaker.async_inference.dispatch.failures import (
    answer_not_spooled,
    answer_too_large,
)
from sagehen.services.sagemaker.async_inference.records import (
    AsyncOutcome,
    AsyncState,
    QueuedRequest,
)

__all__ = ["FoundOutput", "OutputWriter", "Spool", "mark_of"]

WRITE_BYTES = 256 * 2**10


class Spool:
    """An answer on its way to the object store: on disk if large, kept for several tries.

    Args:
        retry: retries while the disk is full, rather than invoking again.
        prefix_bytes: how much of the beginning stays in memory, for a notice.
    """

    def __init__(
        self,
        make_draft: Callable[[], Draft],
        threads: Threads,
        retry: RetryPolicy,
        max_bytes: int,
        prefix_bytes: int = 0,
    ) -> None:
        self._make_draft = make_draft
        self._threads = threads
        self._retry = retry
        self._max_bytes = max_bytes
        self._prefix_bytes = prefix_bytes
        self._waiting = bytearray()
        self._prefix = bytearray()
        self._draft: Draft | None = None
        self._held: bytes | None = None
        self._spare: Path | None = None
        self.size = 0

    @property
    def whole(self) -> bytes | None:
        return bytes(self._prefix) if self.size <= self._prefix_bytes else None

    @property
    def held(self) -> bytes | None:
        """The whole answer, None if it needs a file."""
        return bytes(self._waiting) if self.size <= MOST_HELD_BYTES else None

    @property
    def beginning(self) -> bytes:
        return bytes(self._prefix)

    async def write(self, data: bytes) -> None:
        """Append `data`. Raises AsyncFailure if it is too much or the disk stays full."""
        self.size += len(data)
        if self.size > self._max_bytes:
            raise answer_too_large(self._max_bytes)
        if len(self._prefix) < self._prefix_bytes:
            self._prefix += data[: self._prefix_bytes - len(self._prefix)]
        self._waiting += data
        if len(self._waiting) >= WRITE_BYTES:
            await self._flush()

    async def end(self) -> None:
        """Raises as `write` does."""
        if self.size > MOST_HELD_BYTES and self._waiting:
            await self._flush()

    async def _flush(self) -> None:
        waiting = bytes(self._waiting)
        self._waiting.clear()
        try:
            await self._retry(lambda: self._threads.run(lambda: self._write_out(waiting)))
        except AWAY as error:
            raise answer_not_spooled(str(error)) from error

    def _write_out(self, data: bytes) -> None:
        if self._draft is None:
            self._draft = self._make_draft()
        self._draft.write(data)

    def take_draft(self) -> Draft:
        """Returns a draft of the whole answer, for one try. Blocks; raises StorageFull."""
        if self._draft is not None:
            # A failed try deletes its file: a hard link keeps the data.
            draft, self._draft = self._draft, None
            if draft.held is None:
                self._spare = draft.path.with_name(draft.path.name + ".spare")
                os.link(draft.path, self._spare)
            else:
                self._held = draft.held
            return draft
        draft = self._make_draft()
        try:
            for chunk in self._again():
                draft.write(chunk)
        except BaseException:
            draft.discard()
            raise
        return draft

    def _again(self) -> Iterator[bytes]:
        if self._spare is None:
            yield self._held or bytes(self._waiting)
            return
        with self._spare.open("rb") as file:
            while chunk := file.read(WRITE_BYTES):
                yield chunk

    def discard(self) -> None:
        if self._draft is not None:
            self._draft.discard()
            self._draft = None
        if self._spare is not None:
            with suppress(OSError):
                self._spare.unlink()
            self._spare = None


MARK = "sagehen-request"
OUTCOME = "sagehen-outcome"


class FoundOutput(NamedTuple):
    """The output of an earlier attempt."""

    outcome: AsyncOutcome
    body: bytes | None
    """None if too large for a notice."""


def mark_of(queued: QueuedRequest) -> str:
    return f"{queued.request.request_id}/{queued.redrives}"


class OutputWriter:
    """Writes and finds output objects; finds larger ones than `max_body_bytes` without their
    bytes."""

    def __init__(self, objects: ObjectStore, threads: Threads, max_body_bytes: int) -> None:
        self._objects = objects
        self._threads = threads
        self._max_body_bytes = max_body_bytes

    async def put(self, queued: QueuedRequest, outcome: AsyncOutcome, spool: Spool) -> None:
        """Writes the object at `outcome.location`, whole or not at all.

        Raises:
            SagehenError, OSError, SQLAlchemyError: it was not written.
        """
        location, attributes = _describe(queued, outcome)
        await self._threads.run(lambda: self._put(location, spool, attributes))

    def small(
        self, queued: QueuedRequest, outcome: AsyncOutcome, spool: Spool
    ) -> SmallObject | None:
        """Returns the object as a row, None if it is too large."""
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
            draft.discard()

    async def find(self, queued: QueuedRequest) -> FoundOutput | None:
        """Returns an earlier attempt's output; deletes a failure object from before a redrive.

        Raises:
            Unavailable, OSError, SQLAlchemyError: the store cannot be read now.
        """
        return await self._threads.run(lambda: self._find(queued))

    def _find(self, queued: QueuedRequest) -> FoundOutput | None:
        output = queued.request.output
        answer = self._head(output.location)
        if answer is not None and answer.attributes.metadata.get(MARK) == mark_of(queued):
            outcome = AsyncOutcome(
                state=AsyncState.SUCCEEDED,
                content_type=answer.attributes.headers.get("content-type"),
                location=output.location,
                status=200,
            )
            return FoundOutput(outcome, self._body(answer))
        failure = output.failure_location and self._head(output.failure_location)
        return self._failed(queued, failure) if failure else None

    def _failed(self, queued: QueuedRequest, failure: ObjectInfo) -> FoundOutput | None:
        metadata: Mapping[str, str] = failure.attributes.metadata
        mark = metadata.get(MARK, "")
        if mark == mark_of(queued):
            outcome = msgspec.json.decode(metadata[OUTCOME], type=AsyncOutcome)
            return FoundOutput(outcome, self._body(failure))
        if mark.partition("/")[0] == queued.request.request_id:
            self._objects.delete(failure.bucket, [failure.key])
        return None

    def _head(self, url: str) -> ObjectInfo | None:
        with suppress(NotFound):
            location = parse_location(url)
            return self._objects.head(location.bucket, location.key)
        return None

    def _body(self, info: ObjectInfo) -> bytes | None:
        if info.size > self._max_body_bytes:
            return None
        with self._objects.open(info.bucket, info.key) as stored:
            return b"".join(stored.chunks())


def _describe(queued: QueuedRequest, outcome: AsyncOutcome) -> tuple[Location, Attributes]:
    assert outcome.location is not None
    location = parse_location(outcome.location)
    metadata = {MARK: mark_of(queued)}
    if outcome.state is not AsyncState.SUCCEEDED:
        metadata[OUTCOME] = json.dumps(msgspec.to_builtins(outcome), separators=(",", ":"))
    headers = {"content-type": outcome.content_type or "application/octet-stream"}
    return location, Attributes(headers=headers, metadata=metadata)
