"""What a job is given before it starts: its code and its channels, for each of its hosts."""

from collections.abc import Sequence
from functools import partial

from sagehen.agent.jobs.allowance import Allowance
from sagehen.agent.jobs.code import code_location, fetch_code
from sagehen.agent.jobs.downloads import download
from sagehen.agent.jobs.inputs import InputObject, find_inputs, share
from sagehen.agent.jobs.place import HostPlace
from sagehen.agent.jobs.transfers import Transfers

__all__ = ["InputData"]


class InputData:
    """
    Args:
        places: of all hosts of the job.
        allowances: of the same hosts.
    """

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
        """Bring all of it.

        Raises:
            JobFailed: something is not there, cannot be used or does not fit.
            JobLost: the store has been away for too long.
            DiskFull: there is no room for it.
        """
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
        """What each channel is made of, in their order."""
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
