"""All transfers between a job's hosts and the object store."""

import asyncio
from collections.abc import Sequence
from functools import partial

from sagehen.agent.artifacts.folders import remove_tree
from sagehen.agent.jobs.context import JobContext
from sagehen.agent.jobs.data.checkpoints import Checkpoints
from sagehen.agent.jobs.data.downloads import code_location, download, fetch_code
from sagehen.agent.jobs.data.inputs import InputObject, find_inputs, share
from sagehen.agent.jobs.data.outputs import JobOutputs
from sagehen.agent.jobs.data.transfers import DiskFull, Transfers
from sagehen.agent.jobs.disk import read_room
from sagehen.agent.jobs.disk_allowance import Allowance
from sagehen.agent.jobs.failures import JobFailed, JobLost, disk_full
from sagehen.agent.jobs.host_folders import HostPlace
from sagehen.frame.s3_locations import parse_location

__all__ = ["InputData", "JobData"]


class InputData:
    """Fetches a job's code and channels."""

    def __init__(
        self,
        places: Sequence[HostPlace],
        transfers: Transfers,
        allowances: Sequence[Allowance],
    ) -> None:
        self._places = places
        self._spec = places[0].spec
        self._transfers = transfers
        self._allowances = allowances

    async def fetch(self) -> None:
        """Raises JobFailed (a missing, unusable or too large input), JobLost or DiskFull."""
        location = code_location(self._spec)
        if location is not None:
            for place, allowance in zip(self._places, self._allowances, strict=True):
                await fetch_code(location, place.code, self._transfers, allowance)
        found = await self._find()
        for place, allowance in zip(self._places, self._allowances, strict=True):
            shares = self._shares(place, found)
            allowance.check_inputs(sum(one.size for share in shares for one in share))
            for channel, inputs in zip(self._spec.channels, shares, strict=True):
                folder = place.channel(channel.name)
                await download(inputs, folder, self._transfers, allowance)

    async def _find(self) -> list[list[InputObject]]:
        transfers = self._transfers
        return [
            await transfers.insist(partial(find_inputs, transfers.objects, one, transfers.check))
            for one in self._spec.channels
        ]

    def _shares(
        self, place: HostPlace, found: Sequence[Sequence[InputObject]]
    ) -> list[Sequence[InputObject]]:
        hosts = self._spec.instance_count
        return [
            share(inputs, channel, place.number, hosts)
            for channel, inputs in zip(self._spec.channels, found, strict=True)
        ]


NOTING_SECONDS = 2.0
"""a slow disk must not delay a kill"""


class JobData:
    """Every method raises JobFailed or JobLost."""

    def __init__(self, places: Sequence[HostPlace], around: JobContext) -> None:
        self._jobs = around.home.jobs
        self._places = places
        self._stop_patience_seconds = around.settings.job_stop_patience_seconds
        self._transfers = Transfers(
            around.objects, around.threads, around.clock, around.settings.job_patience_seconds
        )
        self._allowances = [Allowance(place.spec.volume_gb) for place in places]
        self._inputs = InputData(places, self._transfers, self._allowances)
        self._outputs = JobOutputs(places, self._transfers)
        self._checkpoints = [
            Checkpoints(
                place.checkpoints,
                place.base,
                parse_location(place.spec.checkpoint.s3_uri),
                self._transfers,
                around.clock,
                around.pace.checkpoint_seconds,
            )
            for place in places
            if place.spec.checkpoint is not None and place.checkpoints is not None
        ]

    async def fetch(self) -> None:
        try:
            await self._inputs.fetch()
            for checkpoints, allowance in zip(self._checkpoints, self._allowances, strict=False):
                await checkpoints.restore(allowance)
        except DiskFull as error:
            raise JobLost(str(error)) from error

    async def keep_checkpoints(self) -> None:
        """Runs until cancelled."""
        await asyncio.gather(*(checkpoints.keep() for checkpoints in self._checkpoints))

    async def note_writers(self) -> None:
        """Must be called before a signal to the code."""
        noting = [asyncio.to_thread(checkpoints.note_writers) for checkpoints in self._checkpoints]
        await asyncio.wait_for(asyncio.gather(*noting), NOTING_SECONDS)

    async def is_room_low(self) -> bool:
        return (await asyncio.to_thread(read_room, self._jobs)).is_low

    async def make_room(self, outputs_are_kept: bool) -> None:
        """Removes what is no longer read, if the disk is nearly full."""
        if await self.is_room_low():
            drop = self._outputs.drop_others if outputs_are_kept else self._drop_all
            await self._transfers.run(drop)

    def wait_for_room(self) -> None:
        """Allows waits from now on, unless given up."""
        self._transfers.room.allow()

    def give_up_room(self) -> None:
        self._transfers.room.give_up()

    def hurry(self) -> None:
        """Limits the wait for an unavailable store."""
        self._transfers.hurry(self._stop_patience_seconds)

    async def no_room(self, error: DiskFull) -> JobFailed:
        room_wait = self._transfers.room
        room = await asyncio.to_thread(read_room, self._jobs)
        told = " It was told to end, and waited no longer." if room_wait.is_given_up else ""
        lost = (
            f"What the job left and was not stored yet is lost.{told} ({str(error).rstrip('.')})."
        )
        return JobFailed(disk_full(lost, room.free, room.size))

    async def save_checkpoints(self, killed_by: Sequence[int | None] = ()) -> None:
        """Must be called after the code's end.

        Args:
            killed_by: one signal per host of a job to be resumed.
        """
        killed = dict(enumerate(killed_by))
        await asyncio.gather(
            *(one.finish(killed.get(at)) for at, one in enumerate(self._checkpoints))
        )

    async def upload(self) -> tuple[str, ...]:
        """See `JobReport.artifacts`."""
        return await self._outputs.upload()

    def _drop_all(self) -> None:
        for place in self._places:
            for folder in (place.model, place.output, place.inputs, place.tmp):
                remove_tree(folder)

    async def halt(self) -> None:
        """Stops transfers; threads may notice only when the store answers."""
        await self._transfers.halt()

    async def close(self) -> None:
        await self._transfers.close()
