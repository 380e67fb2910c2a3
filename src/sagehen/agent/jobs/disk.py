"""Ends a job that fills more of the disk than its volume would have."""

import asyncio
from collections.abc import Sequence

from sagehen.agent.jobs.allowance import Allowance, used_bytes
from sagehen.agent.jobs.place import HostPlace
from sagehen.clock import Clock

__all__ = ["watch_disk"]

PAUSE_SECONDS = 10.0
PAUSE_PER_LOOK = 20
"""So many times as long as the look took: a million files are not looked at all the time."""


async def watch_disk(places: Sequence[HostPlace], clock: Clock) -> None:
    """Look now and then, until this is cancelled. Raises JobFailed."""
    allowance = Allowance(places[0].spec.volume_gb)
    pause = PAUSE_SECONDS
    while True:
        await clock.sleep(pause)
        began = clock.monotonic()
        for place in places:
            allowance.check_used(await asyncio.to_thread(used_bytes, place.folder))
        pause = max(PAUSE_SECONDS, PAUSE_PER_LOOK * (clock.monotonic() - began))
