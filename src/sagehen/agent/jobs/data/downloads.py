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
from sagehen.agent.jobs.data.inputs import InputFile
from sagehen.agent.jobs.data.transfers import Transfers
from sagehen.agent.jobs.disk_allowance import Allowance
from sagehen.agent.jobs.failures import JobFailed, code_failed, download_failed
from sagehen.base.errors import ArtifactRejected
from sagehen.frame.job_specs import JobSpec
from sagehen.frame.s3_locations import Location, parse_location
from sagehen.services.s3.storage.errors import NoSuchBucket, NoSuchKey

__all__ = ["ChunkReader", "code_location", "download", "fetch_code"]

MAX_BATCH_OBJECTS = 64
MAX_BATCH_BYTES = 16 * 2**20
"""small objects share a thread call"""
COPY_BYTES = 2**20


async def download(
    inputs: Sequence[InputFile], folder: Path, transfers: Transfers, allowance: Allowance
) -> None:
    """Raises JobFailed (an object is gone, malformed or too large), JobLost or DiskFull."""
    await transfers.for_each(partial(_write_batch, folder, transfers, allowance), _batches(inputs))


class ChunkReader(io.RawIOBase):
    def __init__(self, chunks: Iterable[bytes], check: Callable[[], None]) -> None:
        self._chunks = iter(chunks)
        self._check = check
        self._buffered = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        target = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        while not self._buffered:
            self._check()
            chunk = next(self._chunks, b"")
            if not chunk:
                return 0
            self._buffered = memoryview(chunk)
        count = min(len(target), len(self._buffered))
        target[:count], self._buffered = self._buffered[:count], self._buffered[count:]
        return count


def _batches(inputs: Sequence[InputFile]) -> Iterator[list[InputFile]]:
    batch: list[InputFile] = []
    size = 0
    for item in inputs:
        if batch and (len(batch) == MAX_BATCH_OBJECTS or size + item.size > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item.size
    if batch:
        yield batch


def _write_batch(
    folder: Path, transfers: Transfers, allowance: Allowance, inputs: Sequence[InputFile]
) -> None:
    for item in inputs:
        path = folder / item.path
        path.parent.mkdir(parents=True, exist_ok=True)
        url = item.location.url
        try:
            _write(item, path, transfers, allowance)
        except (NoSuchKey, NoSuchBucket) as error:
            raise JobFailed(download_failed(type(error).__name__, url)) from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise JobFailed(
                f"ClientError: Data download failed:{url} is not valid gzip, as its "
                f"channel's CompressionType says: {error}"
            ) from error


def _write(item: InputFile, path: Path, transfers: Transfers, allowance: Allowance) -> None:
    location = item.location
    with (
        allowance.charge() as charge,
        transfers.objects.open(location.bucket, location.key) as opened,
        path.open("wb", buffering=0) as file,
    ):
        pieces = _checked(opened.chunks(), transfers.check)
        for piece in _gunzipped(pieces, transfers.check) if item.gunzip else pieces:
            charge(len(piece))
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
        url = json.loads(value)  # The SDK writes JSON, others the plain address.
    except ValueError:
        url = value
    if not isinstance(url, str) or not url.startswith(("s3://", "https://")):
        return None
    return parse_location(url)


async def fetch_code(
    location: Location, folder: Path, transfers: Transfers, allowance: Allowance
) -> None:
    """Raises JobFailed (missing or unsafe), JobLost or DiskFull."""
    await transfers.run_with_retries(partial(_fetch, location, folder, transfers, allowance))


def _fetch(location: Location, folder: Path, transfers: Transfers, allowance: Allowance) -> None:
    remove_tree(folder)  # left by an earlier try
    folder.mkdir()
    try:
        with transfers.objects.open(location.bucket, location.key) as opened:
            reader = io.BufferedReader(ChunkReader(opened.chunks(), transfers.check), READ_BYTES)
            unpack(cast("BinaryIO", reader), folder, max_bytes=allowance.remaining_bytes)
    except (NoSuchBucket, NoSuchKey) as error:
        raise JobFailed(code_failed(location.url, f"{type(error).__name__}: {error}")) from error
    except ArtifactRejected as error:
        raise JobFailed(code_failed(location.url, str(error))) from error
