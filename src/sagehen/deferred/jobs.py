"""A leased request while it is worked on here."""

import asyncio
from dataclasses import dataclass

from sagehen.deferred.failures import Failure
from sagehen.deferred.places import Place
from sagehen.domain.asynchronous import QueuedRequest

__all__ = ["Job"]


@dataclass(eq=False)
class Job:
    """
    Args:
        lease_until: as far as is known here; nobody else has the request before.
        verdict: why it is to be ended without being sent; None where it is to be sent.
        place: where it is sent.
        has_slot: it has a slot there.
        variant_name: what it is counted under.
    """

    queued: QueuedRequest
    lease_until: float
    verdict: Failure | None = None
    place: Place | None = None
    has_slot: bool = False
    variant_name: str | None = None
    asking: asyncio.Task[object] | None = None
    """While its container is asked: what a cancellation breaks off."""
    cancel_asked: bool = False
    is_lost: bool = False
    """Its lease was another's when it was to be renewed."""

    @property
    def held(self) -> tuple[int, int]:
        return self.queued.sequence, self.queued.attempt

    def cancel(self) -> None:
        """Its user wants it no more. Whose answer is there already ends with it."""
        self.cancel_asked = True
        if self.asking is not None:
            self.asking.cancel()
