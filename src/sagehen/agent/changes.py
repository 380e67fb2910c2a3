"""The version of a list of reports, with long polls."""

import asyncio

from sagehen.base.clock import Clock

__all__ = ["Changes"]

MAX_WAIT_SECONDS = 60.0
COALESCE_SECONDS = 0.05


class Changes:
    """Counts a list's changes. Must be used from the event loop."""

    def __init__(self, clock: Clock) -> None:
        # From the time: never the version that an earlier agent's waiters know.
        self.version = int(clock.now() * 1000)
        self._changed = asyncio.Event()
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None

    def announce(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def announce_soon(self) -> None:
        """Announces with the next change, or after COALESCE_SECONDS.

        Each announcement makes every reader work; a short job would cause seven.
        """
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(COALESCE_SECONDS, self.announce)

    def close(self) -> None:
        """Later waits return at once."""
        self._closed = True
        self.announce()

    async def wait(self, since: int, seconds: float) -> None:
        """Returns once the version is not `since`, or after `seconds`."""
        if self.version != since or self._closed:
            return
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait({changed}, timeout=min(max(seconds, 0), MAX_WAIT_SECONDS))
        finally:
            changed.cancel()
