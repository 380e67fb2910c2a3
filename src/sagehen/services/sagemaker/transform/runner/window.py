"""Bounds the memory of all batches between their reading and the writing of their answers."""

import asyncio
from collections import deque

__all__ = ["Window", "window_bytes"]

MIN_WINDOW_BYTES = 64 * 2**20
MAX_WINDOW_BYTES = 512 * 2**20


def window_bytes(slots: int, max_payload_bytes: int) -> int:
    """While a batch is with each slot, the next one waits for it."""
    return min(max(2 * slots * max_payload_bytes, MIN_WINDOW_BYTES), MAX_WINDOW_BYTES)


class Window:
    """Bytes that batches and their answers may have together.

    A batch in the window needs no more of it to leave: only then can nobody wait for ever.
    """

    def __init__(self) -> None:
        self.limit = MIN_WINDOW_BYTES
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Waits in turn for room; a batch that is larger than the window gets all of it."""
        if not self._waiting and self._fits(size):
            self.used += size
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.give(size)
            raise

    def add(self, size: int) -> None:
        """Counts an answer, which is there already: others wait until it is gone."""
        self.used += size

    def give(self, size: int) -> None:
        self.used -= size
        while self._waiting:
            size, waiter = self._waiting[0]
            if waiter.done():
                self._waiting.popleft()
            elif self._fits(size):
                self._waiting.popleft()
                self.used += size
                waiter.set_result(None)
            else:
                return

    def _fits(self, size: int) -> bool:
        return not self.used or self.used + size <= self.limit
