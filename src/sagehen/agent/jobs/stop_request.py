"""Requests to end an attempt: outcome and grace."""

import asyncio
from collections.abc import Iterable

from sagehen.base.clock import Clock
from sagehen.frame.job_specs import JobOutcome, StopRequest

__all__ = ["StopState"]


class StopState:
    """Whether, and how, an attempt was told to stop.

    Args:
        grace_seconds: default, from SIGTERM to SIGKILL.
    """

    def __init__(self, clock: Clock, grace_seconds: float) -> None:
        self._clock = clock
        self._usual_grace = grace_seconds
        self._deadline: float | None = None
        self._told = asyncio.Event()
        self._hurried = asyncio.Event()
        self.outcome: JobOutcome | None = None
        """of the first request; later ones only shorten the grace"""

    def tell(self, request: StopRequest) -> None:
        if self.outcome is None:
            self.outcome = request.outcome
        self.limit(request.grace_seconds)
        self._told.set()

    def limit(self, grace_seconds: float | None = None) -> None:
        """Shortens the grace, never extends it; None is the default."""
        grace = self._usual_grace if grace_seconds is None else grace_seconds
        deadline = self._clock.monotonic() + max(grace, 0)
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
            self._hurried.set()

    async def wait(self) -> None:
        await self._told.wait()

    def grace_left(self) -> float:
        """Seconds until the containers are killed; counted from the first call."""
        if self._deadline is None:
            self.limit()
        assert self._deadline is not None
        return self._deadline - self._clock.monotonic()

    async def wait_or(self, ends: Iterable[asyncio.Task[int]]) -> None:
        """Returns when one of `ends` is done, or the grace is over or shorter."""
        self._hurried.clear()
        hurried = asyncio.create_task(self._hurried.wait())
        over = asyncio.create_task(self._clock.sleep(self.grace_left()))
        try:
            await asyncio.wait({hurried, over, *ends}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()
            over.cancel()
