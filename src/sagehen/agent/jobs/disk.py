"""Ends a job that exceeds its volume or nearly fills the shared disk."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from sagehen.agent.jobs.disk_allowance import Allowance, used_bytes
from sagehen.agent.jobs.failures import JobFailed, disk_full
from sagehen.agent.jobs.host_folders import HostPlace
from sagehen.base.clock import Clock

__all__ = ["DiskRoom", "read_room", "watch_room", "watch_volumes"]

PAUSE_SECONDS = 10.0
PAUSE_PER_LOOK = 20
"""times as long as the look took, for a million files"""
ROOM_PAUSE_SECONDS = 0.5
"""some disks write 1 GB/s"""
MOST_FLOOR_BYTES = 64 * 2**20
FLOOR_SHARE = 0.05
"""of the disk, up to MOST_FLOOR_BYTES; above the store's reserve, so that state can still be
written"""


class DiskRoom(msgspec.Struct, frozen=True):
    """Space on the disk of all jobs, in bytes."""

    free: int
    size: int

    @property
    def floor(self) -> int:
        return int(min(MOST_FLOOR_BYTES, FLOOR_SHARE * self.size))

    @property
    def is_low(self) -> bool:
        return self.free < self.floor


def read_room(folder: Path) -> DiskRoom:
    """Blocks."""
    disk = os.statvfs(folder)
    return DiskRoom(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)


async def watch_volumes(places: Sequence[HostPlace], clock: Clock) -> None:
    """Runs until cancelled. Raises JobFailed."""
    allowance = Allowance(places[0].spec.volume_gb)
    pause = PAUSE_SECONDS
    while True:
        await clock.sleep(pause)
        began = clock.monotonic()
        for place in places:
            allowance.check_used(await asyncio.to_thread(used_bytes, place.folder))
        pause = max(PAUSE_SECONDS, PAUSE_PER_LOOK * (clock.monotonic() - began))


async def watch_room(places: Sequence[HostPlace], clock: Clock) -> None:
    """Runs until cancelled.

    Raises:
        JobFailed: the disk is nearly full, and no job uses more than this one.
    """
    job = places[0].folder.parent
    pause = ROOM_PAUSE_SECONDS
    while True:
        await clock.sleep(pause)
        began = clock.monotonic()
        room = await asyncio.to_thread(read_room, job.parent)
        if room.is_low and await asyncio.to_thread(_has_most, job, room):
            raise JobFailed(
                disk_full("The job was ended, as none has more on it.", room.free, room.size)
            )
        pause = max(ROOM_PAUSE_SECONDS, PAUSE_PER_LOOK * (clock.monotonic() - began))


def _has_most(job: Path, room: DiskRoom) -> bool:
    mine = used_bytes(job)
    others = (used_bytes(other) for other in job.parent.iterdir() if other != job)
    return mine >= room.floor and mine >= max(others, default=0)
