"""The objects that come of requests: one for the answer or one for the failure, never both.

Each says in its metadata which request it belongs to. So an attempt that follows another finds what
that one may have written, and only has to write it down in the queue.

An answer on its way to the object store: on disk if it is large, good for several tries.
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
    answer_not_kept,
    answer_too_large,
)
from sagehen.services.sagemaker.async_inference.records import (
    AsyncOutcome,
    AsyncState,
    QueuedRequest,
)

__all__ = ["FoundOutput", "OutputWriter", "Spool", "mark_of"]

WRITE_BYTES = 256 * 2**10
"""What is held in memory before it is written."""


class Spool:
    """
    Args:
        make_draft: of the object store that it goes to.
        patience: with a disk that is full: a container that has answered is not asked again.
        most_bytes: more are refused.
        kept_bytes: as many of its first bytes stay in memory, for a notice.
    """

    def __init__(
        self,
        make_draft: Callable[[], Draft],
        threads: Threads,
        patience: RetryPolicy,
        most_bytes: int,
        kept_bytes: int = 0,
    ) -> None:
        self._make_draft = make_draft
        self._threads = threads
        self._patience = patience
        self._most_bytes = most_bytes
        self._kept_bytes = kept_bytes
        self._waiting = bytearray()
        self._kept = bytearray()
        self._draft: Draft | None = None
        self._held: bytes | None = None
        self._spare: Path | None = None
        self.size = 0

    @property
    def whole(self) -> bytes | None:
        """All of it, where that is no more than `kept_bytes`."""
        return bytes(self._kept) if self.size <= self._kept_bytes else None

    @property
    def held(self) -> bytes | None:
        """All of it, where it is so little that it needs no file."""
        return bytes(self._waiting) if self.size <= MOST_HELD_BYTES else None

    @property
    def beginning(self) -> bytes:
        """Its first `kept_bytes`."""
        return bytes(self._kept)

    async def write(self, data: bytes) -> None:
        """Add `data`. Raises Failure: it is too much, or for long it did not fit on the disk."""
        self.size += len(data)
        if self.size > self._most_bytes:
            raise answer_too_large(self._most_bytes)
        if len(self._kept) < self._kept_bytes:
            self._kept += data[: self._kept_bytes - len(self._kept)]
        self._waiting += data
        if len(self._waiting) >= WRITE_BYTES:
            await self._flush()

    async def end(self) -> None:
        """All has been written. Raises Failure as `write` does."""
        if self.size > MOST_HELD_BYTES and self._waiting:
            await self._flush()

    async def _flush(self) -> None:
        waiting = bytes(self._waiting)
        self._waiting.clear()
        try:
            await self._patience(lambda: self._threads.run(lambda: self._write_out(waiting)))
        except AWAY as error:
            raise answer_not_kept(str(error)) from error

    def _write_out(self, data: bytes) -> None:
        if self._draft is None:
            self._draft = self._make_draft()
        self._draft.write(data)

    def take_draft(self) -> Draft:
        """A draft of all of it, for one try to store it. Blocks; raises StorageFull."""
        if self._draft is not None:
            # A try that fails takes the file with it: its second name is for the next.
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
        """Let go of what is on disk. Quick."""
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
    """What an earlier attempt has written."""

    outcome: AsyncOutcome
    body: bytes | None
    """Where it is small enough for a notice."""


def mark_of(queued: QueuedRequest) -> str:
    """Of all that is written for a request, until it is redriven."""
    return f"{queued.request.request_id}/{queued.redrives}"


class OutputWriter:
    """
    Args:
        most_body_bytes: larger objects are found without their bytes.
    """

    def __init__(self, objects: ObjectStore, threads: Threads, most_body_bytes: int) -> None:
        self._objects = objects
        self._threads = threads
        self._most_body_bytes = most_body_bytes

    async def put(self, queued: QueuedRequest, outcome: AsyncOutcome, spool: Spool) -> None:
        """Write the object at `outcome.location`: it is there whole when this returns, or not.

        Raises:
            SagehenError, OSError, SQLAlchemyError: it was not written.
        """
        location, attributes = _describe(queued, outcome)
        await self._threads.run(lambda: self._put(location, spool, attributes))

    def small(
        self, queued: QueuedRequest, outcome: AsyncOutcome, spool: Spool
    ) -> SmallObject | None:
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

    async def find(self, queued: QueuedRequest) -> FoundOutput | None:
        """What an earlier attempt has written; the failure object from before a redrive goes.

        Raises:
            Unavailable, OSError, SQLAlchemyError: that cannot be seen now.
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
        if info.size > self._most_body_bytes:
            return None
        with self._objects.open(info.bucket, info.key) as found:
            return b"".join(found.chunks())


def _describe(queued: QueuedRequest, outcome: AsyncOutcome) -> tuple[Location, Attributes]:
    assert outcome.location is not None
    location = parse_location(outcome.location)
    metadata = {MARK: mark_of(queued)}
    if outcome.state is not AsyncState.SUCCEEDED:
        metadata[OUTCOME] = json.dumps(msgspec.to_builtins(outcome), separators=(",", ":"))
    headers = {"content-type": outcome.content_type or "application/octet-stream"}
    return location, Attributes(headers=headers, metadata=metadata)
