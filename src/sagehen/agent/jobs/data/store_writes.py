"""Writes a job's files into the object store, atomically; resolves links and detects writers.

All functions block.
"""

import errno
import fcntl
import io
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from sagehen.agent.jobs.failures import JobFailed, upload_failed
from sagehen.base.errors import Invalid
from sagehen.frame.s3_locations import Location
from sagehen.services.s3.storage import ObjectStore
from sagehen.services.s3.storage.errors import NoSuchBucket
from sagehen.services.s3.storage.files import Draft
from sagehen.services.s3.storage.records import Attributes

__all__ = [
    "PIECE_BYTES",
    "check_key",
    "is_being_written",
    "is_only_appended_to",
    "put_stream",
    "resolve",
]

PIECE_BYTES = 2**20
MAX_KEY_BYTES = 1024


@contextmanager
def put_stream(
    objects: ObjectStore, location: Location, check: Callable[[], None]
) -> Iterator[IO[bytes]]:
    """Yields a file whose content becomes the object, unless an exception is raised.

    Args:
        check: called per chunk, and before the object is replaced; may raise.

    Raises:
        JobFailed: the bucket is missing, or the key is invalid.
        Unavailable, OSError: temporary failures.
    """
    draft = objects.draft()
    try:
        with io.BufferedWriter(_DraftFile(draft, check), PIECE_BYTES) as file:
            yield file
        check()
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
    """Raises JobFailed."""
    try:
        size = len(location.key.encode())
    except UnicodeEncodeError:
        raise JobFailed(upload_failed(ascii(location.url), "Its name is not UTF-8.")) from None
    if size > MAX_KEY_BYTES:
        reason = f"Its key would have {size} bytes, more than {MAX_KEY_BYTES}."
        raise JobFailed(upload_failed(location.url, reason))


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


OPT_ML = "/opt/ml/"


def resolve(link: Path, base: Path) -> str | None:
    """Returns None if the target is missing. Blocks. `base` is the container's /opt/ml."""
    try:
        target = os.readlink(link)
        if target.startswith(OPT_ML):
            target = str(base / target.removeprefix(OPT_ML))
        return os.path.realpath(link.parent / target, strict=True)
    except OSError:
        return None


def is_being_written(path: Path) -> bool:
    """Whether a process has the file open or mapped for writing; False if unknown.

    The kernel grants no read lease on such a file. A process opening it now waits for the lease,
    which is returned at once.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # the default signal would end this process
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    finally:
        os.close(descriptor)
    return False


def is_only_appended_to(path: Path) -> bool:
    """Whether all writers, at least one, can only append. Scans open files in about 10 ms."""
    try:
        info = path.stat()
    except OSError:
        return False
    flags = list(_writers(info.st_dev, info.st_ino))
    return bool(flags) and all(descriptor_flags & os.O_APPEND for descriptor_flags in flags)


def _writers(device: int, inode: int) -> Iterator[int]:
    """Yields the flags of writable descriptors."""
    for process in _names("/proc"):
        if not process.isdigit():
            continue
        for descriptor in _names(f"/proc/{process}/fd"):
            with suppress(OSError, ValueError):
                info = os.stat(f"/proc/{process}/fd/{descriptor}")
                if (info.st_dev, info.st_ino) == (device, inode):
                    flags = _flags(f"/proc/{process}/fdinfo/{descriptor}")
                    if flags & os.O_ACCMODE != os.O_RDONLY:
                        yield flags


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _flags(path: str) -> int:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "flags":
            return int(value, 8)
    return 0
