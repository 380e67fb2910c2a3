"""A lock that is given to whoever has waited longest."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from sagehen.errors import Unavailable

__all__ = ["Turns"]


class Turns:
    """One thread at a time has the turn. Not to be taken again by the thread that has it.

    Args:
        longest_wait_seconds: for a turn.
    """

    def __init__(self, longest_wait_seconds: float) -> None:
        self._longest_wait_seconds = longest_wait_seconds
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Event] = deque()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Have the turn while the block runs.

        Raises:
            Unavailable: it did not come in time.
        """
        self._take()
        try:
            yield
        finally:
            self._pass_on()

    def _take(self) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Event()
            self._waiting.append(mine)
        if mine.wait(self._longest_wait_seconds):
            return
        with self._lock:
            if mine.is_set():
                return  # It came in this very moment.
            self._waiting.remove(mine)
        raise Unavailable(
            f"The state was busy with other writes for {self._longest_wait_seconds:g} seconds."
        )

    def _pass_on(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._taken = False
