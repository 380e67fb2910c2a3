"""What a job leaves for its caller: its model and its other output, as archives or file by file."""

import errno
import os
import shutil
from collections.abc import Sequence
from functools import partial

from sagehen.agent.folders import remove_tree
from sagehen.agent.jobs.allowance import Allowance
from sagehen.agent.jobs.artifacts import LeftFile, collect, write_archive
from sagehen.agent.jobs.failures import JobFailed, upload_failed
from sagehen.agent.jobs.place import HostPlace
from sagehen.agent.jobs.store_writes import PIECE_BYTES, check_key, put_stream
from sagehen.agent.jobs.transfers import Transfers
from sagehen.domain.locations import Location, parse_location

__all__ = ["Outputs"]

_BY_THE_JOB = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP)
"""Why a folder of a job's cannot be read, by its own doing."""


class Outputs:
    """
    Args:
        places: of all hosts; what they left is put together.
    """

    def __init__(self, places: Sequence[HostPlace], transfers: Transfers) -> None:
        self._places = places
        self._spec = places[0].spec
        self._transfers = transfers
        self._folder = parse_location(self._spec.output_uri.rstrip("/")).below(
            f"{self._spec.job_name}/output/"
        )

    async def upload(self) -> tuple[str, ...]:
        """Bring all of it to the store; the names of what there is, below the job's folder there.

        Raises:
            JobFailed: it has no place there, cannot be read, or is more than the job may write.
            JobLost: the store has been away for too long.
            DiskFull: there is no room for it.
        """
        left = await self._transfers.run(self._collect)
        self._check_size(left)
        names = [self._name(folder) for folder, files in left.items() if files]
        for folder, files in left.items():
            if files and self._spec.compress_output:
                work = partial(self._put_archive, files, self._folder.below(self._name(folder)))
                await self._transfers.insist(work)
            elif files:
                await self._put_files(files, self._folder.below(self._name(folder)))
        return tuple(names)

    def drop_others(self) -> None:
        """Remove the inputs and temporary files, but not where a link leads to one. Blocks."""
        try:
            left = self._collect()
        except JobFailed:
            return  # Whoever uploads says why.
        needed = [one.source for files in left.values() for one in files if one.has_bytes]
        for place in self._places:
            for folder in (place.inputs, place.tmp):
                real = os.path.realpath(folder)
                if not any(source.is_relative_to(real) for source in needed):
                    remove_tree(folder)

    def _name(self, folder: str) -> str:
        if not self._spec.compress_output:
            return f"{folder}/"
        return "model.tar.gz" if folder == "model" else "output.tar.gz"

    def _collect(self) -> dict[str, list[LeftFile]]:
        try:
            return {
                "model": collect([(place.model, place.base) for place in self._places]),
                "data": collect([(place.output, place.base) for place in self._places]),
            }
        except OSError as error:
            # Whose code has ended changes nothing any more: it would be so at any later time.
            if error.errno in _BY_THE_JOB:
                why = f"{error.strerror}: {str(error.filename)[-200:]!r}"
                raise JobFailed(upload_failed(self._folder.url, why)) from error
            raise

    def _check_size(self, left: dict[str, list[LeftFile]]) -> None:
        size = sum(one.size for files in left.values() for one in files)
        hosts = len(self._places)
        Allowance(self._spec.volume_gb * hosts).check_used(size)

    def _put_archive(self, files: Sequence[LeftFile], location: Location) -> None:
        _check_readable(files, location)
        with put_stream(self._transfers.objects, location, self._transfers.check) as target:
            write_archive(files, target)

    async def _put_files(self, files: Sequence[LeftFile], folder: Location) -> None:
        files = [one for one in files if one.has_bytes]
        for one in files:
            check_key(folder.below(one.path))
        _check_readable(files, folder)
        await self._transfers.each(partial(self._put_file, folder), files)

    def _put_file(self, folder: Location, one: LeftFile) -> None:
        location = folder.below(one.path)
        with (
            one.source.open("rb") as file,
            put_stream(self._transfers.objects, location, self._transfers.check) as target,
        ):
            shutil.copyfileobj(file, target, PIECE_BYTES)


def _check_readable(files: Sequence[LeftFile], location: Location) -> None:
    """Now, as nothing will make them so: what fails later may be another time."""
    for one in files:
        try:
            if one.has_bytes:
                one.source.open("rb").close()
        except OSError as error:
            raise JobFailed(upload_failed(location.url, f"{one.path}: {error.strerror}")) from error
