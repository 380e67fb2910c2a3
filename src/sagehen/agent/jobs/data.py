"""Everything that goes between a job's hosts and the object store."""

import asyncio
from collections.abc import Sequence

from sagehen.agent.jobs.allowance import Allowance
from sagehen.agent.jobs.checkpoints import Checkpoints
from sagehen.agent.jobs.input_data import InputData
from sagehen.agent.jobs.outputs import Outputs
from sagehen.agent.jobs.place import HostPlace
from sagehen.agent.jobs.surroundings import JobSurroundings
from sagehen.agent.jobs.transfers import Transfers
from sagehen.domain.locations import parse_location

__all__ = ["JobData"]


NOTING_SECONDS = 2.0
"""Whoever is to be killed is, whatever the disk does."""


class JobData:
    """Every method raises JobFailed or JobLost, as what it consists of does."""

    def __init__(self, places: Sequence[HostPlace], around: JobSurroundings) -> None:
        self._transfers = Transfers(
            around.objects, around.threads, around.clock, around.settings.job_patience_seconds
        )
        self._allowances = [Allowance(place.spec.volume_gb) for place in places]
        self._inputs = InputData(places, self._transfers, self._allowances)
        self._outputs = Outputs(places, self._transfers)
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
        """Code, channels, and what earlier attempts have kept."""
        await self._inputs.fetch()
        for checkpoints, allowance in zip(self._checkpoints, self._allowances, strict=False):
            await checkpoints.restore(allowance)

    async def keep_checkpoints(self) -> None:
        """While the code runs: until this is cancelled."""
        await asyncio.gather(*(checkpoints.keep() for checkpoints in self._checkpoints))

    async def note_writers(self) -> None:
        """Before it is sent a signal that may end it."""
        noting = [asyncio.to_thread(checkpoints.note_writers) for checkpoints in self._checkpoints]
        await asyncio.wait_for(asyncio.gather(*noting), NOTING_SECONDS)

    async def save_checkpoints(self, killed_by: Sequence[int | None] = ()) -> None:
        """When it does not run any more. If it goes on elsewhere: which signal ended each host."""
        killed = dict(enumerate(killed_by))
        await asyncio.gather(
            *(one.finish(killed.get(at)) for at, one in enumerate(self._checkpoints))
        )

    async def upload(self) -> tuple[str, ...]:
        """What the job has made; see `JobReport.artifacts`."""
        return await self._outputs.upload()

    async def close(self) -> None:
        """Give up what is under way."""
        await self._transfers.halt()
