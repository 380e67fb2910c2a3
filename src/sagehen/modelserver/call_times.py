"""How long calls take, for how many of them it is good to have at hand."""

__all__ = ["CallTimes"]

QUICK_SECONDS = 0.005
"""Work that lies ready for a worker takes no longer than this: a request that comes here could not
have begun much sooner anywhere else."""
MOST_READY = 8
"""Requests for each worker, with the one it works on."""
CALLS_NEEDED = 200
"""Before which nothing is said of the slowest in a hundred."""

_UP = 2.0
_DOWN = _UP ** (1 / 99)
"""Balanced where one call in a hundred takes longer."""


class CallTimes:
    """Follows the time within which 99 of 100 calls come back."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._calls = 0

    def record(self, seconds: float) -> None:
        self._calls += 1
        if self._calls == 1:
            self._seconds = seconds
        elif seconds > self._seconds:
            self._seconds *= _UP
        else:
            self._seconds /= _DOWN

    @property
    def ready(self) -> int:
        """How many requests a worker should have at hand, with the one it works on.

        One where a call takes its time: the others had better wait where they can still go to
        another instance. More where calls are over sooner than the next request could come. A
        power of two, so that it seldom changes.
        """
        ready = 1
        if self._calls < CALLS_NEEDED:
            return ready
        while ready < MOST_READY and self._seconds * 2 * ready <= QUICK_SECONDS:
            ready *= 2
        return ready
