"""What a request is about: its body, inline or an object, in pieces."""

import contextlib
from collections.abc import AsyncIterator, Iterator

from sagehen.clock import Clock
from sagehen.deferred.dispatch.failures import input_missing, input_too_large
from sagehen.deferred.dispatch.threads import Threads
from sagehen.domain.asynchronous import QueuedRequest
from sagehen.domain.locations import parse_location
from sagehen.errors import Invalid, NotFound, Unavailable
from sagehen.objects.store import ObjectStore, OpenObject
from sagehen.store import async_requests
from sagehen.store.database import Database

__all__ = ["Input", "Inputs"]


class Input:
    """An open input; `seconds` were spent waiting for the object store so far."""

    def __init__(
        self, threads: Threads, clock: Clock, size: int, first: bytes, seconds: float
    ) -> None:
        self._threads = threads
        self._clock = clock
        self._first = first
        self._rest: Iterator[bytes] = iter(())
        self.size = size
        self.seconds = seconds
        self.broken: Exception | None = None
        """What went wrong in the middle of it."""

    def then(self, rest: Iterator[bytes]) -> None:
        """What comes after the first piece."""
        self._rest = rest

    async def chunks(self) -> AsyncIterator[bytes]:
        """All of it, once. What it raises is kept as `broken`, whoever swallows it."""
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
    """
    Args:
        most_bytes: of one input.
    """

    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        threads: Threads,
        clock: Clock,
        most_bytes: int,
    ) -> None:
        self._database = database
        self._objects = objects
        self._threads = threads
        self._clock = clock
        self._most_bytes = most_bytes

    @contextlib.asynccontextmanager
    async def open(self, queued: QueuedRequest) -> AsyncIterator[Input]:
        """The input of a request.

        Raises:
            Failure: there is none, or it is too large.
            Unavailable, OSError, SQLAlchemyError: it cannot be read now.
        """
        url = queued.request.input_location
        began = self._clock.monotonic()
        if url is None:
            body = await self._threads.run(lambda: self._inline(queued.sequence))
            yield Input(self._threads, self._clock, len(body), body, 0)
            return
        opened, rest, first = await self._threads.run(lambda: self._begin(url))
        seconds = self._clock.monotonic() - began
        try:
            found = Input(self._threads, self._clock, opened.info.size, first, seconds)
            found.then(rest)
            yield found
        finally:
            opened.close()

    def _inline(self, sequence: int) -> bytes:
        with self._database.read() as connection:
            body = async_requests.body(connection, sequence)
        return body or b""

    def _begin(self, url: str) -> tuple[OpenObject, Iterator[bytes], bytes]:
        """Open it and read its first piece: a small object takes one thread's turn in all."""
        try:
            location = parse_location(url)
            opened = self._objects.open(location.bucket, location.key)
        except (Invalid, NotFound) as error:
            raise input_missing(url, str(error)) from error
        try:
            if opened.info.size > self._most_bytes:
                raise input_too_large(url, opened.info.size, self._most_bytes)
            rest = iter(opened.chunks())
            return opened, rest, next(rest, b"")
        except BaseException:
            opened.close()
            raise
