"""Brings objects into a host's folder before its container starts."""

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from sagehen.agent.jobs.allowance import Allowance
from sagehen.agent.jobs.failures import JobFailed, download_failed
from sagehen.agent.jobs.inputs import InputObject
from sagehen.agent.jobs.transfers import Transfers
from sagehen.objects.faults import NoSuchBucket, NoSuchKey

__all__ = ["ChunkReader", "download"]

MOST_TOGETHER = 64
MOST_BYTES_TOGETHER = 16 * 2**20
"""Small objects share a turn in a thread."""
COPY_BYTES = 2**20


async def download(
    inputs: Sequence[InputObject], folder: Path, transfers: Transfers, allowance: Allowance
) -> None:
    """Write each into its file below `folder`.

    Raises:
        JobFailed: one is not there any more, is not what it is said to be, or does not fit.
        JobLost: the store has been away for too long.
        DiskFull: there is no room for it.
    """
    await transfers.each(partial(_write_some, folder, transfers, allowance), _together(inputs))


class ChunkReader(io.RawIOBase):
    """Pieces of bytes as a file to be read once."""

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
