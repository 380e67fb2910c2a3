"""Wakes waiting ReceiveMessage calls."""

import asyncio
import contextlib
from collections.abc import Iterator

from sagehen.base.errors import LimitExceeded

__all__ = ["Arrivals"]


class Arrivals:
    """Waiting calls by queue; all run in one event loop."""

    def __init__(self, most_waiting: int) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._most = most_waiting
        self._waiting: dict[str, dict[asyncio.Event, None]] = {}
        self._count = 0
        self.closed = False
        """true once the server stops"""

    def tell(self, queue_name: str) -> None:
        """Wakes a waiter; callable from any thread."""
        loop = self._loop
        if loop is not None:
            # The loop may just be closing; then nobody needs waking.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self.wake_one, queue_name)

    def tell_all(self) -> None:
        """Wakes a waiter of each queue; callable from any thread."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wake_one_each)

    def _wake_one_each(self) -> None:
        for queue_name in list(self._waiting):
            self.wake_one(queue_name)

    def close(self) -> None:
        self.closed = True
        for events in self._waiting.values():
            for event in events:
                event.set()

    def wake_one(self, queue_name: str) -> None:
        """Wakes the longest waiter. One that leaves messages must wake the next."""
        for event in self._waiting.get(queue_name, ()):
            if not event.is_set():
                event.set()
                return

    @contextlib.contextmanager
    def waiting(self, queue_name: str) -> Iterator[asyncio.Event]:
        """Yields an event set on arrivals; clear it before looking. Raises LimitExceeded."""
        if self._count >= self._most:
            raise LimitExceeded(f"{self._count} ReceiveMessage calls are waiting already.")
        self._loop = asyncio.get_running_loop()
        event = asyncio.Event()
        self._waiting.setdefault(queue_name, {})[event] = None
        self._count += 1
        try:
            yield event
        finally:
            self._count -= 1
            del self._waiting[queue_name][event]
            if event.is_set():
                # This waiter ends without having looked.
                self.wake_one(queue_name)
            if not self._waiting[queue_name]:
                del self._waiting[queue_name]
