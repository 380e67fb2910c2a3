"""Requests to end an attempt: outcome and grace."""

import asyncio
from collections.abc import Iterable

from sagehen.base.clock import Clock
from sagehen.base.concurrency import first_of
from sagehen.frame.job_specs import JobOutcome, StopRequest

__all__ = ["StopState"]


class StopState:
    """Whether, and how, an attempt was told to stop.

    Args:
        grace_seconds: default, from SIGTERM to SIGKILL.
    """

    def __init__(self, clock: Clock, grace_seconds: float) -> None:
        self._clock = clock
        self._default_grace = grace_seconds
        self._deadline: float | None = None
        self._requested = asyncio.Event()
        self._deadline_changed = asyncio.Event()
        self.outcome: JobOutcome | None = None
        """of the first request; later ones only shorten the grace"""

    def request_stop(self, request: StopRequest) -> None:
        if self.outcome is None:
            self.outcome = request.outcome
        self.limit_grace(request.grace_seconds)
        self._requested.set()

    def limit_grace(self, grace_seconds: float | None = None) -> float:
        """Shortens the grace, never extends it; None is the default. Returns the deadline."""
        grace = self._default_grace if grace_seconds is None else grace_seconds
        deadline = self._clock.monotonic() + max(grace, 0)
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
            self._deadline_changed.set()
        return self._deadline

    async def wait(self) -> None:
        await self._requested.wait()

    def grace_left(self) -> float:
        """Seconds until the containers are killed; counted from the first call."""
        deadline = self.limit_grace() if self._deadline is None else self._deadline
        return deadline - self._clock.monotonic()

    async def wait_or(self, ends: Iterable[asyncio.Task[int]]) -> None:
        """Returns when one of `ends` is done, or the grace is over or shorter."""
        self._deadline_changed.clear()
        await first_of(self._deadline_changed.wait(), self._clock.sleep(self.grace_left()), *ends)
