"""Downloads a job's inputs and code into a host's folder."""

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from sagehen.agent.artifacts.folders import remove_tree
from sagehen.agent.artifacts.unpack import unpack
from sagehen.agent.jobs.data.inputs import InputObject
from sagehen.agent.jobs.data.transfers import Transfers
from sagehen.agent.jobs.disk_allowance import Allowance
from sagehen.agent.jobs.failures import JobFailed, code_failed, download_failed
from sagehen.base.errors import ArtifactRejected
from sagehen.frame.job_specs import JobSpec
from sagehen.frame.s3_locations import Location, parse_location
from sagehen.services.s3.storage.errors import NoSuchBucket, NoSuchKey

__all__ = ["ChunkReader", "code_location", "download", "fetch_code"]

MOST_TOGETHER = 64
MOST_BYTES_TOGETHER = 16 * 2**20
"""small objects share a thread call"""
COPY_BYTES = 2**20


async def download(
    inputs: Sequence[InputObject], folder: Path, transfers: Transfers, allowance: Allowance
) -> None:
    """Raises JobFailed (an object is gone, malformed or too large), JobLost or DiskFull."""
    await transfers.each(partial(_write_some, folder, transfers, allowance), _together(inputs))


class ChunkReader(io.RawIOBase):
    def __init__(self, chunks: Iterable[bytes], check: Callable[[], None]) -> None:
        self._chunks = iter(chunks)
        self._check = check
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        target = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        while not self._left:
            self._check()
            chunk = next(self._chunks, b"")
            if not chunk:
                return 0
            self._left = memoryview(chunk)
        count = min(len(target), len(self._left))
        target[:count], self._left = self._left[:count], self._left[count:]
        return count


def _together(inputs: Sequence[InputObject]) -> Iterator[list[InputObject]]:
    some: list[InputObject] = []
    size = 0
    for one in inputs:
        if some and (len(some) == MOST_TOGETHER or size + one.size > MOST_BYTES_TOGETHER):
            yield some
            some, size = [], 0
        some.append(one)
        size += one.size
    if some:
        yield some


def _write_some(
    folder: Path, transfers: Transfers, allowance: Allowance, inputs: Sequence[InputObject]
) -> None:
    for one in inputs:
        path = folder / one.path
        path.parent.mkdir(parents=True, exist_ok=True)
        url = one.location.url
        try:
            _write(one, path, transfers, allowance)
        except (NoSuchKey, NoSuchBucket) as error:
            raise JobFailed(download_failed(type(error).__name__, url)) from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise JobFailed(
                f"ClientError: Data download failed:{url} is not what CompressionType Gzip says: "
                f"{error}"
            ) from error


def _write(one: InputObject, path: Path, transfers: Transfers, allowance: Allowance) -> None:
    location = one.location
    with (
        allowance.lent() as take,
        transfers.objects.open(location.bucket, location.key) as opened,
        path.open("wb", buffering=0) as file,
    ):
        pieces = _checked(opened.chunks(), transfers.check)
        for piece in _gunzipped(pieces, transfers.check) if one.gunzip else pieces:
            take(len(piece))
            file.write(piece)


def _checked(chunks: Iterable[bytes], check: Callable[[], None]) -> Iterator[bytes]:
    for chunk in chunks:
        check()
        yield chunk


def _gunzipped(chunks: Iterable[bytes], check: Callable[[], None]) -> Iterator[bytes]:
    compressed = io.BufferedReader(ChunkReader(chunks, check), COPY_BYTES)
    with gzip.open(cast("BinaryIO", compressed), "rb") as plain:
        while piece := plain.read(COPY_BYTES):
            yield piece


SUBMIT_DIRECTORY = "sagemaker_submit_directory"
READ_BYTES = 2**20


def code_location(spec: JobSpec) -> Location | None:
    """Returns None if the container has the code. Raises Invalid."""
    value = spec.hyperparameters.get(SUBMIT_DIRECTORY)
    if value is None:
        return None
    try:
        said = json.loads(value)  # The SDK writes JSON, others the plain address.
    except ValueError:
        said = value
    if not isinstance(said, str) or not said.startswith(("s3://", "https://")):
        return None
    return parse_location(said)


async def fetch_code(
    location: Location, folder: Path, transfers: Transfers, allowance: Allowance
) -> None:
    """Raises JobFailed (missing or unsafe), JobLost or DiskFull."""
    await transfers.insist(partial(_fetch, location, folder, transfers, allowance))


def _fetch(location: Location, folder: Path, transfers: Transfers, allowance: Allowance) -> None:
    remove_tree(folder)  # left by an earlier try
    folder.mkdir()
    try:
        with transfers.objects.open(location.bucket, location.key) as opened:
            reader = io.BufferedReader(ChunkReader(opened.chunks(), transfers.check), READ_BYTES)
            unpack(cast("BinaryIO", reader), folder, most_bytes=allowance.left)
    except (NoSuchBucket, NoSuchKey) as error:
        raise JobFailed(code_failed(location.url, f"{type(error).__name__}: {error}")) from error
    except ArtifactRejected as error:
        raise JobFailed(code_failed(location.url, str(error))) from error
