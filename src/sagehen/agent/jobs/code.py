"""The code archive of a script job: what `sagemaker_submit_directory` names, unpacked."""

import io
import json
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from sagehen.agent.folders import remove_tree
from sagehen.agent.jobs.allowance import Allowance
from sagehen.agent.jobs.downloads import ChunkReader
from sagehen.agent.jobs.failures import JobFailed, code_failed
from sagehen.agent.jobs.transfers import Transfers
from sagehen.agent.unpack import unpack
from sagehen.domain.jobs import JobSpec
from sagehen.domain.locations import Location, parse_location
from sagehen.errors import ArtifactRejected
from sagehen.objects.faults import NoSuchBucket, NoSuchKey

__all__ = ["code_location", "fetch_code"]

SUBMIT_DIRECTORY = "sagemaker_submit_directory"
READ_BYTES = 2**20


def code_location(spec: JobSpec) -> Location | None:
    """Where the archive is; None where the code is in the container already, or there is none.

    Raises:
        Invalid: that is no address.
    """
    value = spec.hyperparameters.get(SUBMIT_DIRECTORY)
    if value is None:
        return None
    try:
        said = json.loads(value)  # The SDK writes JSON, others the address as it is.
    except ValueError:
        said = value
    if not isinstance(said, str) or not said.startswith(("s3://", "https://")):
        return None
    return parse_location(said)


async def fetch_code(
    location: Location, folder: Path, transfers: Transfers, allowance: Allowance
) -> None:
    """Unpack the archive into `folder`.

    Raises:
        JobFailed: it is not there, or is not an archive that can be unpacked safely.
        JobLost: the store has been away for too long.
        DiskFull: there is no room for it.
    """
    await transfers.insist(partial(_fetch, location, folder, transfers, allowance))


def _fetch(location: Location, folder: Path, transfers: Transfers, allowance: Allowance) -> None:
    remove_tree(folder)  # What an earlier try has left.
    folder.mkdir()
    try:
        with transfers.objects.open(location.bucket, location.key) as opened:
            reader = io.BufferedReader(ChunkReader(opened.chunks(), transfers.check), READ_BYTES)
            unpack(cast("BinaryIO", reader), folder, most_bytes=allowance.left)
    except (NoSuchBucket, NoSuchKey) as error:
        raise JobFailed(code_failed(location.url, f"{type(error).__name__}: {error}")) from error
    except ArtifactRejected as error:
        raise JobFailed(code_failed(location.url, str(error))) from error
