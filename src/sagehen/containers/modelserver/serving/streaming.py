"""The body of an answer that is made piece by piece, in a worker, as fast as it is taken."""

from collections import deque
from collections.abc import Callable

__all__ = ["AHEAD_BYTES", "AnswerStream"]

AHEAD_BYTES = 64 * 1024
"""What may be made before it is taken; then the worker waits."""


class AnswerStream:
    """Pieces that have come and were not taken yet.

    Args:
        first: the first piece.
        on_taken: called with numbers of bytes, now and then, when they were taken.
        on_abandon: called once if nobody wants what is still to come.
    """

    def __init__(
        self, first: bytes, on_taken: Callable[[int], None], on_abandon: Callable[[], None]
    ) -> None:
        self._ready = deque([first])
        self._on_taken = on_taken
        self._on_abandon = on_abandon
        self._taken = 0
        self._abandoned = False
        self._ended = False
        self.whole = False
        """The last piece was made, and nothing went wrong."""
        self.on_change: Callable[[], None] | None = None
        """Called when there is a piece to take, or none will come any more."""

    def take(self) -> bytes | None:
        """The next piece; None if it is not there yet, or there is none."""
        if not self._ready:
            return None
        piece = self._ready.popleft()
        self._taken += len(piece)
        # Not each time: the worker waits for it only when twice as much is on the way.
        if self._taken >= AHEAD_BYTES // 2 and not self._ended:
            self._on_taken(self._taken)
            self._taken = 0
        return piece

    @property
    def over(self) -> bool:
        """Everything was taken, and nothing else will come."""
        return self._ended and not self._ready

    def abandon(self) -> None:
        """Nobody wants what is still to come: the worker stops at its next piece."""
        if self._abandoned:
            return
        self._abandoned = True
        self.on_change = None
        self._ready.clear()
        if not self._ended:
            self._on_abandon()

    def add(self, piece: bytes) -> None:
        if not self._abandoned:
            self._ready.append(piece)
            self._tell()

    def end(self, whole: bool) -> None:
        self.whole = whole
        self._ended = True
        self._tell()

    def _tell(self) -> None:
        if self.on_change is not None:
            self.on_change()
