"""Streams a worker's answer as fast as the client reads."""

from collections import deque
from collections.abc import Callable

__all__ = ["AHEAD_BYTES", "AnswerStream"]

AHEAD_BYTES = 64 * 1024
"""Limit of untaken bytes, at which a worker pauses."""


class AnswerStream:
    """Holds pieces not taken yet.

    `on_taken` gets the bytes taken since its last call; `on_abandon` is called at most once.
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
        """The last piece was made without error."""
        self.on_change: Callable[[], None] | None = None
        """Called for a new piece and for the end."""

    def take(self) -> bytes | None:
        """Returns None if no piece is ready or the stream is over."""
        if not self._ready:
            return None
        piece = self._ready.popleft()
        self._taken += len(piece)
        # Not each time: the worker pauses only at twice this size.
        if self._taken >= AHEAD_BYTES // 2 and not self._ended:
            self._on_taken(self._taken)
            self._taken = 0
        return piece

    @property
    def over(self) -> bool:
        """Whether the stream has ended and all was taken."""
        return self._ended and not self._ready

    def abandon(self) -> None:
        """Stops the worker at its next piece."""
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
