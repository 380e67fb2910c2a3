"""A leased request while it is worked on here."""

import asyncio
from dataclasses import dataclass

from sagehen.deferred.dispatch.failures import Failure
from sagehen.deferred.dispatch.inputs import SmallInput
from sagehen.deferred.dispatch.places import Place
from sagehen.domain.asynchronous import QueuedRequest

__all__ = ["Job"]


@dataclass(eq=False)
class Job:
    """
    Args:
        lease_until: as far as is known here; nobody else has the request before.
        input: where it has been read already.
        verdict: why it is to be ended without being sent; None where it is to be sent.
        place: where it is sent.
        has_slot: it has a slot there.
        variant_name: what it is counted under.
    """

    queued: QueuedRequest
    lease_until: float
    input: SmallInput | None = None
    verdict: Failure | None = None
    place: Place | None = None
    has_slot: bool = False
    variant_name: str | None = None
    asking: asyncio.Task[object] | None = None
    """While its container is asked: what a cancellation breaks off."""
    broken_off: Failure | None = None
    """Why it is to be asked no longer."""
    ends: bool = False
    """What comes of it is known, and is being written down."""
    is_lost: bool = False
    """Its lease was another's when it was to be renewed."""

    @property
    def held(self) -> tuple[int, int]:
        return self.queued.sequence, self.queued.attempt

    def break_off(self, why: Failure) -> None:
        """Nobody wants it any more. Whose answer is there already ends with that."""
        if self.broken_off is None:
            self.broken_off = why
            if self.asking is not None:
                self.asking.cancel()
