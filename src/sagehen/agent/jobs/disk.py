"""Ends a job that exceeds its volume or nearly fills the shared disk."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from sagehen.agent.jobs.disk_allowance import Allowance, used_bytes
from sagehen.agent.jobs.failures import JobFailed, disk_full
from sagehen.agent.jobs.host_folders import HostPaths
from sagehen.base.clock import Clock

__all__ = ["DiskSpace", "read_disk_space", "watch_disk_space", "watch_volumes"]

VOLUME_PAUSE_SECONDS = 10.0
PAUSE_PER_MEASUREMENT = 20
"""times as long as the look took, for a million files"""
DISK_PAUSE_SECONDS = 0.5
"""some disks write 1 GB/s"""
MAX_FLOOR_BYTES = 64 * 2**20
FLOOR_SHARE = 0.05
"""of the disk, up to MAX_FLOOR_BYTES; above the store's reserve, so that state can still be
written"""


class DiskSpace(msgspec.Struct, frozen=True):
    """Space on the disk of all jobs, in bytes."""

    free: int
    size: int

    @property
    def floor(self) -> int:
        return int(min(MAX_FLOOR_BYTES, FLOOR_SHARE * self.size))

    @property
    def is_low(self) -> bool:
        return self.free < self.floor


def read_disk_space(folder: Path) -> DiskSpace:
    """Blocks."""
    disk = os.statvfs(folder)
    return DiskSpace(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)


async def watch_volumes(hosts: Sequence[HostPaths], clock: Clock) -> None:
    """Runs until cancelled. Raises JobFailed."""
    allowance = Allowance(hosts[0].spec.volume_gb)
    pause = VOLUME_PAUSE_SECONDS
    while True:
        await clock.sleep(pause)
        started = clock.monotonic()
        for paths in hosts:
            allowance.check_used(await asyncio.to_thread(used_bytes, paths.folder))
        pause = max(VOLUME_PAUSE_SECONDS, PAUSE_PER_MEASUREMENT * (clock.monotonic() - started))


async def watch_disk_space(hosts: Sequence[HostPaths], clock: Clock) -> None:
    """Runs until cancelled.

    Raises:
        JobFailed: the disk is nearly full, and no job uses more than this one.
    """
    job = hosts[0].folder.parent
    pause = DISK_PAUSE_SECONDS
    while True:
        await clock.sleep(pause)
        started = clock.monotonic()
        disk = await asyncio.to_thread(read_disk_space, job.parent)
        if disk.is_low and await asyncio.to_thread(_uses_most, job, disk):
            raise JobFailed(
                disk_full("This job was ended because it uses the most.", disk.free, disk.size)
            )
        pause = max(DISK_PAUSE_SECONDS, PAUSE_PER_MEASUREMENT * (clock.monotonic() - started))


def _uses_most(job: Path, disk: DiskSpace) -> bool:
    own_bytes = used_bytes(job)
    others = (used_bytes(other) for other in job.parent.iterdir() if other != job)
    return own_bytes >= disk.floor and own_bytes >= max(others, default=0)
