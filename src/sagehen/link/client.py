"""A gateway's link to one container: many requests at once, over one stream."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from itertools import count
from os import getpid
from pathlib import Path
from typing import Protocol

from sagehen.base.clock import Clock
from sagehen.http1.pool import CONNECT_TIMEOUT_SECONDS, Connector, open_connection
from sagehen.link.begun_marks import BegunMarks
from sagehen.link.call import AnswerLines, LinkCall
from sagehen.link.client_stream import ClientStream
from sagehen.link.frames import LinkError

__all__ = ["LinkClient", "LinkWaiter"]

log = logging.getLogger(__name__)


class LinkWaiter(Protocol):
    """A request that waits for the link."""

    def connected(self, upstream: "LinkCall") -> None: ...

    def refused(self) -> None:
        """Nothing was sent."""


class LinkClient:
    """The link to one container, which is opened for the first request, and again after a loss.

    Args:
        address: `link:/path`, or another one that `connector` knows: then the container's marks of
            begun requests are out of reach, and a request in flight counts as begun.
        slots_changed: called with the requests that the container takes at once, whenever it says
            so.
    """

    def __init__(
        self,
        address: str,
        clock: Clock,
        slots_changed: Callable[[int], None] = lambda _: None,
        connector: Connector = open_connection,
    ) -> None:
        self._address = address
        self._clock = clock
        self._connector = connector
        self._stream: ClientStream | None = None
        self._waiting: deque[LinkWaiter] = deque()
        self._opening: asyncio.Task[None] | None = None
        self._closed = False
        self._marks_files = count(1)
        self.parsed_lines = AnswerLines()
        self.slots_changed = slots_changed

    def take(self, waiter: LinkWaiter) -> LinkCall | None:
        """Returns None if `waiter` will be called."""
        stream = self._stream
        if stream is not None and stream.is_open:
            call = stream.new_call()
            if call is not None:
                return call
        self._waiting.append(waiter)
        self._open_if_closed()
        return None

    def forget(self, waiter: LinkWaiter) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def close_idle(self, now: float) -> None:
        """A link costs nothing while it is idle, and stays open."""

    def close(self) -> None:
        """Closes the link when its last request has ended."""
        self._closed = True
        if self._stream is not None:
            self.call_ended(self._stream)

    @property
    def is_done(self) -> bool:
        """Whether it is closed, and the last request has ended."""
        return self._closed and self._stream is None and self._opening is None

    def abort(self) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._stream is not None:
            self._stream.abort()

    # Called by the stream

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def call_ended(self, stream: ClientStream) -> None:
        if self._stream is not stream:
            return  # the handshake is not over
        while self._waiting and stream.is_open:
            call = stream.new_call()
            if call is None:
                return
            try:
                self._waiting.popleft().connected(call)
            except Exception:
                log.exception("A request could not be sent.")
                call.abandon()
        if self._closed and not stream.calls:
            stream.close()

    def stream_lost(self, stream: ClientStream) -> None:
        if self._stream is stream:
            self._stream = None
            if self._closed:
                self._refuse_waiting()
            elif self._waiting:
                self._open_if_closed()

    def _open_if_closed(self) -> None:
        is_open = self._stream is not None and self._stream.is_open
        if self._opening is None and not is_open:
            self._opening = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        stream: ClientStream | None = None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                stream = await self._open_stream()
        except (OSError, LinkError) as error:  # includes TimeoutError
            log.debug("No link can be opened to %s: %s", self._address, error)
        except Exception:
            # Requests must not wait for ever.
            log.exception("No link can be opened to %s.", self._address)
        finally:
            self._opening = None
        if stream is not None and stream.is_open:
            self._stream = stream
            self._opened_stream(stream)
            self.call_ended(stream)
        else:
            self._open_failed()

    def _opened_stream(self, stream: ClientStream) -> None:
        """Called before requests are sent."""

    def _open_failed(self) -> None:
        self._refuse_waiting()

    async def _open_stream(self) -> ClientStream:
        """Raises OSError or LinkError."""
        stream = await self._connect()
        try:
            reason = await stream.opened
        except BaseException:
            stream.abort()
            raise
        if reason is not None:
            raise LinkError(reason)
        return stream

    async def _connect(self) -> ClientStream:
        """Raises OSError."""
        marks = self._make_marks()
        try:
            return await self._connector(
                self._address, lambda: ClientStream(self, marks), self._clock
            )
        except BaseException:
            if marks is not None:
                marks.close()
            raise

    def _make_marks(self) -> BegunMarks | None:
        socket = self._address.removeprefix("link:")
        if not socket.startswith("/"):
            return None
        path = Path(f"{socket}.begun-{getpid()}-{next(self._marks_files)}")
        try:
            return BegunMarks(path)
        except OSError as error:
            # Then a request in flight counts as begun when the link breaks.
            log.warning("The marks of begun requests cannot be kept in %s: %s", path, error)
            return None

    def _refuse_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            waiter.refused()
