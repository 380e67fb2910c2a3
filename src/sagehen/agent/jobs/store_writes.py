"""Writes a job's files into the object store: each is there whole, or not at all. Blocks."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from sagehen.agent.jobs.failures import JobFailed, upload_failed
from sagehen.domain.locations import Location
from sagehen.domain.objects import Attributes
from sagehen.errors import Invalid
from sagehen.objects import ObjectStore
from sagehen.objects.faults import NoSuchBucket
from sagehen.objects.files import Draft

__all__ = ["PIECE_BYTES", "check_key", "put_stream"]

PIECE_BYTES = 2**20
LONGEST_KEY_BYTES = 1024


@contextmanager
def put_stream(
    objects: ObjectStore, location: Location, check: Callable[[], None]
) -> Iterator[IO[bytes]]:
    """What is written becomes the object, unless something is raised.

    Args:
        check: called for each piece; what it raises ends this.

    Raises:
        JobFailed: there is no such bucket, or no such object can be.
        Unavailable, OSError: it cannot be written now.
    """
    draft = objects.draft()
    try:
        with io.BufferedWriter(_DraftFile(draft, check), PIECE_BYTES) as file:
            yield file
        objects.put(location.bucket, location.key, draft, Attributes())
    except NoSuchBucket as error:
        raise JobFailed(
            upload_failed(location.url, "NoSuchBucket (404): The specified bucket does not exist.")
        ) from error
    except Invalid as error:
        raise JobFailed(upload_failed(location.url, str(error))) from error
    finally:
        draft.discard()


def check_key(location: Location) -> None:
    """Whether there can be an object of that key. Raises JobFailed."""
    try:
        size = len(location.key.encode())
    except UnicodeEncodeError:
        raise JobFailed(upload_failed(ascii(location.url), "Its name is not UTF-8.")) from None
    if size > LONGEST_KEY_BYTES:
        why = f"Its key would have {size} bytes, more than {LONGEST_KEY_BYTES}."
        raise JobFailed(upload_failed(location.url, why))


class _DraftFile(io.RawIOBase):
    def __init__(self, draft: Draft, check: Callable[[], None]) -> None:
        self._draft = draft
        self._check = check

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self._check()
        piece = bytes(data)  # type: ignore[call-overload]
        self._draft.write(piece)
        return len(piece)
