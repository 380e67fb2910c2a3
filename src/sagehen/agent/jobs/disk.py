"""Ends a job that fills more of the disk than its volume would have, or the disk that all share."""

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
"""So many times as long as the look took: a million files are not looked at all the time."""
ROOM_PAUSE_SECONDS = 0.5
"""A second is a gigabyte, for some disks."""
MOST_FLOOR_BYTES = 64 * 2**20
FLOOR_SHARE = 0.05
"""Of the disk, or MOST_FLOOR_BYTES where that is less: more than the store leaves free, so that it
ends who fills the disk while the state can still be written."""


class DiskRoom(msgspec.Struct, frozen=True):
    """Of the disk that holds all jobs, in bytes."""

    free: int
    size: int

    @property
    def floor(self) -> int:
        return int(min(MOST_FLOOR_BYTES, FLOOR_SHARE * self.size))

    @property
    def is_low(self) -> bool:
        return self.free < self.floor


def read_room(folder: Path) -> DiskRoom:
    """Of the disk that a folder is on. Blocks."""
    disk = os.statvfs(folder)
    return DiskRoom(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)


async def watch_volumes(places: Sequence[HostPlace], clock: Clock) -> None:
    """Look at a job's files now and then, until this is cancelled. Raises JobFailed."""
    allowance = Allowance(places[0].spec.volume_gb)
    pause = PAUSE_SECONDS
    while True:
        await clock.sleep(pause)
        began = clock.monotonic()
        for place in places:
            allowance.check_used(await asyncio.to_thread(used_bytes, place.folder))
        pause = max(PAUSE_SECONDS, PAUSE_PER_LOOK * (clock.monotonic() - began))


async def watch_room(places: Sequence[HostPlace], clock: Clock) -> None:
    """Look at the disk now and then, until this is cancelled.

    Raises:
        JobFailed: it is nearly full, and no job has more on it than this one.
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
    """Whether there is no job whose end would make more room, and this one's makes some."""
    mine = used_bytes(job)
    others = (used_bytes(other) for other in job.parent.iterdir() if other != job)
    return mine >= room.floor and mine >= max(others, default=0)
