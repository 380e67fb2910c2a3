"""Reads a request's input, inline or an S3 object, in pieces."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from sqlalchemy import Connection

from sagehen.base.clock import Clock
from sagehen.base.concurrency import Threads
from sagehen.base.errors import Invalid, NotFound, Unavailable
from sagehen.frame.s3_locations import parse_location
from sagehen.services.s3.storage.store import ObjectStore, OpenObject
from sagehen.services.sagemaker.async_inference import request_store as async_requests
from sagehen.services.sagemaker.async_inference.dispatch.failures import (
    input_missing,
    input_too_large,
)
from sagehen.services.sagemaker.async_inference.records import QueuedRequest
from sagehen.state.database import Database

__all__ = ["Input", "Inputs", "SmallInput"]

MAX_SMALL_BYTES = 16 * 2**10
"""Inputs up to this size are read with the lease and held in memory."""


class SmallInput(NamedTuple):
    data: bytes
    content_type: str | None = None


class Input:
    """An open input; `seconds` were spent waiting for the object store."""

    content_type: str | None = None

    def __init__(
        self, threads: Threads, clock: Clock, size: int, first: bytes, seconds: float
    ) -> None:
        self._threads = threads
        self._clock = clock
        self._first = first
        self._rest: Iterator[bytes] = iter(())
        self._close: Callable[[], None] | None = None
        self.size = size
        self.seconds = seconds
        self.broken: Exception | None = None

    def then(self, rest: Iterator[bytes], close: Callable[[], None]) -> None:
        self._rest = rest
        self._close = close

    @property
    def whole(self) -> bytes | None:
        """The input, None if it is in several pieces."""
        return self._first if len(self._first) == self.size else None

    def close(self) -> None:
        if self._close is not None:
            self._close()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yields the input, once. An error is kept as `broken`, in case the HTTP client swallows
        it."""
        left = self.size - len(self._first)
        if self._first:
            yield self._first
            self._first = b""
        while left > 0:
            began = self._clock.monotonic()
            try:
                chunk = await self._threads.run(lambda: next(self._rest, b""))
            except Exception as error:
                self.broken = error
                raise
            self.seconds += self._clock.monotonic() - began
            if not chunk:
                self.broken = Unavailable("The object ended before its size.")
                raise self.broken
            left -= len(chunk)
            yield chunk


class Inputs:
    """Opens the inputs of requests."""

    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        threads: Threads,
        clock: Clock,
        max_bytes: int,
    ) -> None:
        self._database = database
        self._objects = objects
        self._threads = threads
        self._clock = clock
        self._max_bytes = max_bytes

    def read_small(
        self, connection: Connection, requests: Sequence[QueuedRequest]
    ) -> dict[int, SmallInput]:
        """Returns, by sequence, the small inputs that are in the database; for some hundred
        requests."""
        limit = min(MAX_SMALL_BYTES, self._max_bytes)
        inline = [queued.sequence for queued in requests if queued.request.input_location is None]
        bodies = async_requests.bodies(connection, inline, limit)
        inputs = {sequence: SmallInput(body) for sequence, body in bodies.items()}
        locations = {
            queued.sequence: location
            for queued in requests
            if (location := _object_key(queued)) is not None
        }
        if locations:
            smalls = self._objects.read_rows(connection, list(locations.values()))
            objects = {
                (small.bucket, small.key): small for small in smalls if len(small.data) <= limit
            }
            inputs |= {
                sequence: SmallInput(small.data, small.attributes.headers.get("content-type"))
                for sequence, location in locations.items()
                if (small := objects.get(location)) is not None
            }
        return inputs

    async def open(self, queued: QueuedRequest, small: SmallInput | None = None) -> Input:
        """Opens a request's input; the caller closes it.

        Raises:
            AsyncFailure: the input is missing or too large.
            Unavailable, OSError, SQLAlchemyError: it cannot be read now.
        """
        if small is not None:
            made = Input(self._threads, self._clock, len(small.data), small.data, 0)
            made.content_type = small.content_type
            return made
        url = queued.request.input_location
        began = self._clock.monotonic()
        if url is None:
            body = await self._threads.run(lambda: self._inline(queued.sequence))
            return Input(self._threads, self._clock, len(body), body, 0)
        opened, rest, first = await self._threads.run(lambda: self._begin(url))
        seconds = self._clock.monotonic() - began
        result = Input(self._threads, self._clock, opened.info.size, first, seconds)
        result.content_type = opened.info.attributes.headers.get("content-type")
        result.then(rest, opened.close)
        return result

    def _inline(self, sequence: int) -> bytes:
        with self._database.read() as connection:
            body = async_requests.body(connection, sequence)
        return body or b""

    def _begin(self, url: str) -> tuple[OpenObject, Iterator[bytes], bytes]:
        """Opens and reads in one thread call, which is enough for a small object."""
        try:
            location = parse_location(url)
            opened = self._objects.open(location.bucket, location.key)
        except (Invalid, NotFound) as error:
            raise input_missing(url, str(error)) from error
        try:
            if opened.info.size > self._max_bytes:
                raise input_too_large(url, opened.info.size, self._max_bytes)
            rest = iter(opened.chunks())
            return opened, rest, next(rest, b"")
        except BaseException:
            opened.close()
            raise


def _object_key(queued: QueuedRequest) -> tuple[str, str] | None:
    url = queued.request.input_location
    if url is None:
        return None
    with suppress(Invalid, UnicodeError):
        location = parse_location(url)
        location.key.encode()
        return location.bucket, location.key
    return None
