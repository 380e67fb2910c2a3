"""The body of an answer that is made piece by piece: in a thread, as fast as it is taken."""

import logging
import threading
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Generator
from contextlib import closing

__all__ = ["Stream"]

AHEAD_BYTES = 64 * 1024
"""What may be made before it is taken; then the thread waits."""

log = logging.getLogger(__name__)


class Stream:
    """`first` is there already; `rest` makes the others as it is iterated.

    `produce` runs in the thread; everything else is called on the event loop.
    """

    def __init__(self, first: bytes, rest: Generator[bytes]) -> None:
        self._first = first
        self._rest = rest
        self._room = threading.Condition()
        self._ahead = 0
        self._abandoned = False
        self._ready: deque[bytes] = deque()
        self._ended = False
        self.whole = False
        """The last piece was made, and nothing went wrong."""
        self.on_change: Callable[[], None] | None = None
        """Called when there is a piece to take, or none will come any more."""
        self.on_abandon: Callable[[], None] | None = None

    def produce(self, loop: AbstractEventLoop) -> None:
        """Make pieces until the last, or until nobody wants them any more; raises nothing."""
        whole = False
        try:
            with closing(self._rest):
                whole = self._put(loop, self._first) and all(
                    self._put(loop, piece) for piece in self._rest
                )
        except BaseException:  # the user's code may even call sys.exit()
            log.exception("The model's code raised in the middle of its answer, which is cut off.")
        loop.call_soon_threadsafe(self._end, whole)

    def _put(self, loop: AbstractEventLoop, piece: bytes) -> bool:
        """Whether more is wanted."""
        with self._room:
            self._room.wait_for(lambda: self._abandoned or self._ahead < AHEAD_BYTES)
            if self._abandoned:
                return False
            self._ahead += len(piece)
        loop.call_soon_threadsafe(self._add, piece)
        return True

    def take(self) -> bytes | None:
        """The next piece; None if it is not made yet, or there is none."""
        if not self._ready:
            return None
        piece = self._ready.popleft()
        with self._room:
            self._ahead -= len(piece)
            self._room.notify()
        return piece

    @property
    def over(self) -> bool:
        """Everything was taken, and nothing else will come."""
        return self._ended and not self._ready

    def abandon(self) -> None:
        """Nobody wants what is still to come: the thread stops at its next piece."""
        if self._abandoned:
            return
        self.on_change = None
        self._ready.clear()
        with self._room:
            self._abandoned = True
            self._room.notify()
        if self.on_abandon is not None and not self._ended:
            self.on_abandon()

    def _add(self, piece: bytes) -> None:
        if not self._abandoned:
            self._ready.append(piece)
            self._tell()

    def _end(self, whole: bool) -> None:
        self.whole = whole
        self._ended = True
        self._tell()

    def _tell(self) -> None:
        if self.on_change is not None:
            self.on_change()
