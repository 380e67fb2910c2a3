"""All transfers between a job's hosts and the object store."""

import asyncio
from collections.abc import Sequence
from functools import partial

from sagehen.agent.artifacts.folders import remove_tree
from sagehen.agent.jobs.context import JobContext
from sagehen.agent.jobs.data.checkpoints import Checkpoints
from sagehen.agent.jobs.data.downloads import code_location, download, fetch_code
from sagehen.agent.jobs.data.inputs import InputFile, find_inputs, share
from sagehen.agent.jobs.data.outputs import JobOutputs
from sagehen.agent.jobs.data.transfers import DiskFull, Transfers
from sagehen.agent.jobs.disk import read_disk_space
from sagehen.agent.jobs.disk_allowance import Allowance
from sagehen.agent.jobs.failures import JobFailed, JobLost, disk_full
from sagehen.agent.jobs.host_folders import HostPaths
from sagehen.frame.s3_locations import parse_location

__all__ = ["InputData", "JobData"]


class InputData:
    """Fetches a job's code and channels."""

    def __init__(
        self,
        hosts: Sequence[HostPaths],
        transfers: Transfers,
        allowances: Sequence[Allowance],
    ) -> None:
        self._hosts = hosts
        self._spec = hosts[0].spec
        self._transfers = transfers
        self._allowances = allowances

    async def fetch(self) -> None:
        """Raises JobFailed (a missing, unusable or too large input), JobLost or DiskFull."""
        location = code_location(self._spec)
        if location is not None:
            for paths, allowance in zip(self._hosts, self._allowances, strict=True):
                await fetch_code(location, paths.code, self._transfers, allowance)
        channel_objects = await self._list_channels()
        for paths, allowance in zip(self._hosts, self._allowances, strict=True):
            shares = self._shares(paths, channel_objects)
            allowance.check_inputs(sum(item.size for share in shares for item in share))
            for channel, inputs in zip(self._spec.channels, shares, strict=True):
                folder = paths.channel(channel.name)
                await download(inputs, folder, self._transfers, allowance)

    async def _list_channels(self) -> list[list[InputFile]]:
        transfers = self._transfers
        return [
            await transfers.run_with_retries(
                partial(find_inputs, transfers.objects, channel, transfers.check)
            )
            for channel in self._spec.channels
        ]

    def _shares(
        self, paths: HostPaths, channel_objects: Sequence[Sequence[InputFile]]
    ) -> list[Sequence[InputFile]]:
        host_count = self._spec.instance_count
        return [
            share(inputs, channel, paths.number, host_count)
            for channel, inputs in zip(self._spec.channels, channel_objects, strict=True)
        ]


NOTING_SECONDS = 2.0
"""a slow disk must not delay a kill"""


class JobData:
    """Every method raises JobFailed or JobLost."""

    def __init__(self, hosts: Sequence[HostPaths], context: JobContext) -> None:
        self._jobs = context.home.jobs
        self._hosts = hosts
        self._stop_retry_seconds = context.settings.job_stop_patience_seconds
        self._transfers = Transfers(
            context.objects,
            context.threads,
            context.clock,
            context.settings.job_patience_seconds,
            context.check_lease,
        )
        self._allowances = [Allowance(paths.spec.volume_gb) for paths in hosts]
        self._inputs = InputData(hosts, self._transfers, self._allowances)
        self._outputs = JobOutputs(hosts, self._transfers)
        self._checkpoints = [
            Checkpoints(
                paths.checkpoints,
                paths.base,
                parse_location(paths.spec.checkpoint.s3_uri),
                self._transfers,
                context.clock,
                context.pace.checkpoint_seconds,
            )
            for paths in hosts
            if paths.spec.checkpoint is not None and paths.checkpoints is not None
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
        """Records complete checkpoints before a signal to the job's code."""
        noting = [asyncio.to_thread(checkpoints.note_writers) for checkpoints in self._checkpoints]
        await asyncio.wait_for(asyncio.gather(*noting), NOTING_SECONDS)

    async def is_disk_low(self) -> bool:
        return (await asyncio.to_thread(read_disk_space, self._jobs)).is_low

    async def free_disk(self, outputs_are_kept: bool) -> None:
        """Removes what is no longer read, if the disk is nearly full."""
        if await self.is_disk_low():
            drop = self._outputs.drop_others if outputs_are_kept else self._drop_all
            await self._transfers.run(drop)

    def allow_waiting_for_disk(self) -> None:
        """Allows waits from now on, unless given up."""
        self._transfers.disk_full_retry.allow()

    def stop_waiting_for_disk(self) -> None:
        self._transfers.disk_full_retry.give_up()

    def limit_retries(self) -> None:
        """Limits the wait for an unavailable store."""
        self._transfers.limit_retries(self._stop_retry_seconds)

    async def disk_full_failure(self, error: DiskFull) -> JobFailed:
        retry = self._transfers.disk_full_retry
        disk = await asyncio.to_thread(read_disk_space, self._jobs)
        stopped = " The job was stopped and waited no longer." if retry.is_given_up else ""
        advice = f"Results that were not yet stored are lost.{stopped} ({str(error).rstrip('.')})."
        return JobFailed(disk_full(advice, disk.free, disk.size))

    async def save_checkpoints(self, killed_by: Sequence[int | None] = ()) -> None:
        """Stores the last checkpoints, after the end of the job's code.

        Args:
            killed_by: one signal per host of a job to be resumed.
        """
        signals = dict(enumerate(killed_by))
        await asyncio.gather(
            *(
                checkpoints.finish(signals.get(index))
                for index, checkpoints in enumerate(self._checkpoints)
            )
        )

    async def upload(self) -> tuple[str, ...]:
        """See `JobReport.artifacts`."""
        return await self._outputs.upload()

    def _drop_all(self) -> None:
        for paths in self._hosts:
            for folder in (paths.model, paths.output, paths.inputs, paths.tmp):
                remove_tree(folder)

    async def halt(self) -> None:
        """Stops transfers; threads may notice only when the store answers."""
        await self._transfers.halt()

    async def close(self) -> None:
        await self._transfers.close()
