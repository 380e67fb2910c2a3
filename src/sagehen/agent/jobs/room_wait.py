"""How long a job waits for room on a full disk."""

import asyncio
import logging

from sagehen.clock import Clock

__all__ = ["RoomWait"]

log = logging.getLogger(__name__)

ROOM_SECONDS = 60.0
"""In all: meanwhile the job's own files take the room that all others need."""
PAUSE_SECONDS = 5.0


class RoomWait:
    """Not at all, before it is allowed; and not when it was given up."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: float | None = None
        self._allowed = False
        self._given_up = asyncio.Event()

    @property
    def is_given_up(self) -> bool:
        return self._given_up.is_set()

    def allow(self) -> None:
        self._allowed = True

    def give_up(self) -> None:
        """Whoever waits has waited long enough."""
        self._given_up.set()

    async def may_come(self, why: str) -> bool:
        """Wait a moment; whether it is worth another try.

        Args:
            why: there is none, for the log.
        """
        if not self._allowed or self.is_given_up:
            return False
        now = self._clock.monotonic()
        if self._until is None:
            self._until = now + ROOM_SECONDS
            log.warning("A training job waits: %s", why, extra={"action": "wait"})
        if now >= self._until:
            return False
        await self._pause()
        return not self.is_given_up

    async def _pause(self) -> None:
        sleeping = asyncio.create_task(self._clock.sleep(PAUSE_SECONDS))
        given_up = asyncio.create_task(self._given_up.wait())
        try:
            await asyncio.wait({sleeping, given_up}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            given_up.cancel()
